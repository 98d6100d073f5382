// Contiguous arrays of one dtype, of torch or of numpy. They exist because nanobind's conversion of
// a torch tensor costs as much as a kernel of a few numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "bind/tensor_argument.h"
#include "core/message.h"

namespace gt {

template <class T>
inline constexpr Element kElementOf = Element::kFloat32;
template <>
inline constexpr Element kElementOf<std::int64_t> = Element::kInt64;
template <>
inline constexpr Element kElementOf<std::int32_t> = Element::kInt32;
template <>
inline constexpr Element kElementOf<bool> = Element::kBool;

// Number of elements of a view, which must be contiguous.
inline std::size_t contiguous_elements(const char* op, const char* name, const TensorView& view) {
  if (!view.is_contiguous()) {
    throw std::invalid_argument(message(op, ": ", name, " is not contiguous"));
  }
  return static_cast<std::size_t>(view.elements());
}

// Pointer and size of a TensorArgument or an OutputArgument.
template <class T, class Argument>
class Contiguous {
 public:
  Contiguous(const char* op, const char* name, nanobind::handle object)
      : argument_(op, name, object) {
    const TensorView& view = argument_.view();
    if (view.element != kElementOf<T>) {
      throw DtypeError(message(op, ": ", name, " is not of ", element_name(kElementOf<T>)));
    }
    size_ = contiguous_elements(op, name, view);
  }

  T* data() const { return static_cast<T*>(argument_.view().data); }
  std::size_t size() const { return size_; }

 private:
  Argument argument_;
  std::size_t size_ = 0;
};

}  // namespace gt
