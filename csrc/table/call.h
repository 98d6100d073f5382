// A call of a kernel as its entry gets it: arguments that are read one after another, results that
// are made for the caller, and the sizes from which a kernel pays. No kernel here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "aten/kernel_table.h"
#include "core/parallel.h"
#include "core/tensor_view.h"

namespace gt {

using Sizes = std::span<const std::int64_t>;

// Reads the arguments of a call in the order in which its row states them. What is missing or of
// another kind reads as nothing, and the call is then not well formed.
class Arguments {
 public:
  Arguments(const KernelArgument* arguments, std::size_t count) : arguments_(arguments, count) {}

  TensorView tensor();
  std::optional<TensorView> optional_tensor();
  double number();
  std::optional<double> optional_number();
  std::int64_t integer();
  bool flag() { return number() != 0; }
  Sizes integers();
  // None: no dimension is named. One integer reads as a list of one.
  std::optional<Sizes> dims();
  std::optional<std::string_view> optional_text();
  // Reads the rest: true if all of it is absent.
  bool has_none_left();

  // True if every argument has been read, and each was of the kind that was asked for.
  bool are_well_formed() const { return is_well_formed_ && next_ == arguments_.size(); }

 private:
  const KernelArgument* next();
  TensorView view_of(const KernelTensor& tensor);

  std::span<const KernelArgument> arguments_;
  std::size_t next_ = 0;
  bool is_well_formed_ = true;
};

// The results of a call, in their order.
class Results {
 public:
  explicit Results(const KernelCaller& caller) : caller_(caller) {}

  // A contiguous result. Throws std::bad_alloc where the caller has no memory for it.
  TensorView make(Element element, Sizes sizes);
  float* floats(Sizes sizes) { return static_cast<float*>(make(Element::kFloat32, sizes).data); }

  const KernelCaller& caller() const { return caller_; }
  int threads() const { return std::clamp<int>(caller_.threads, 1, kThreadsMax); }
  int threads_most() const { return std::clamp<int>(caller_.threads_most, 1, kThreadsMax); }
  int count() const { return count_; }

 private:
  const KernelCaller& caller_;
  int count_ = 0;
};

bool is_float32(const TensorView& view);
bool is_float32(const std::optional<TensorView>& view);  // or absent

template <class... Views>
bool are_float32(const Views&... views) {
  return (is_float32(views) && ...);
}

// Contiguous float32.
inline bool is_row_major(const TensorView& view) {
  return is_float32(view) && view.is_contiguous();
}
inline bool is_row_major(const std::optional<TensorView>& view) {  // or absent
  return !view || is_row_major(*view);
}

inline std::size_t count_of(const TensorView& view) {
  return static_cast<std::size_t>(view.elements());
}

inline const float* floats(const TensorView& view) { return static_cast<const float*>(view.data); }
inline const float* floats(const std::optional<TensorView>& view) {  // null where absent
  return view ? floats(*view) : nullptr;
}

inline Sizes sizes_of(const TensorView& view) {
  return {view.shape, static_cast<std::size_t>(view.rank)};
}

// A contiguous view with its strides, which live as long as this.
class Contiguous {
 public:
  explicit Contiguous(const TensorView& view);
  Contiguous(const Contiguous&) = delete;
  Contiguous& operator=(const Contiguous&) = delete;

  const TensorView& view() const { return view_; }

 private:
  std::vector<std::int64_t> strides_;
  TensorView view_;
};

// The elements of an operand in row-major order: its own memory, or a copy that lives as long as
// this. Null where the operand is absent.
class RowMajor {
 public:
  RowMajor(const TensorView& view, int threads);
  RowMajor(const std::optional<TensorView>& view, int threads);

  const float* floats() const { return static_cast<const float*>(data_); }
  void* data() const { return const_cast<void*>(data_); }

 private:
  const void* data_ = nullptr;
  std::unique_ptr<std::byte[]> copy_;
};

}  // namespace gt
