// Sums, means, largest and smallest numbers, and counts of bools: which calls the kernels take.
#include <algorithm>

#include "cpu/array_path.h"
#include "cpu/dims.h"
#include "table/kernel.h"

namespace gt {
namespace {

// self, dim, keepdim: over some dimensions, or all where none is named. Dimensions that stand
// beside each other are reduced in one pass, the last ones first.
struct ReductionCall {
  explicit ReductionCall(Arguments& from)
      : self(from.tensor()), dims(from.dims()), keepdim(from.flag()) {}

  bool is_plain() const {
    return self.rank != 0 && !self.is_empty() && self.is_contiguous() &&
           (!dims || std::ranges::all_of(*dims, [this](std::int64_t dim) {
             return dim >= -self.rank && dim < self.rank;
           }));
  }
  bool pays() const { return true; }

  std::vector<bool> reduced_dims() const {
    std::vector<bool> is_reduced(static_cast<std::size_t>(self.rank), !dims || dims->empty());
    for (const std::int64_t dim : dims.value_or(Sizes{})) {
      is_reduced[static_cast<std::size_t>(dim < 0 ? dim + self.rank : dim)] = true;
    }
    return is_reduced;
  }

  std::vector<DimShape> passes() const {
    const std::vector<bool> is_reduced = reduced_dims();
    std::vector<DimShape> passes;
    std::size_t inner = 1, outer = count_of(self);
    for (std::size_t dim = is_reduced.size(); dim-- > 0;) {
      const auto size = static_cast<std::size_t>(self.shape[dim]);
      outer /= size;
      if (!is_reduced[dim]) {
        inner *= size;
        continue;
      }
      if (passes.empty() || !is_reduced[dim + 1]) {
        passes.push_back({outer, 1, inner});
      }
      passes.back() = {outer, passes.back().count * size, inner};
    }
    return passes;
  }

  std::vector<std::int64_t> sizes() const {
    const std::vector<bool> is_reduced = reduced_dims();
    std::vector<std::int64_t> sizes;
    for (std::size_t dim = 0; dim < is_reduced.size(); ++dim) {
      if (keepdim || !is_reduced[dim]) {
        sizes.push_back(is_reduced[dim] ? 1 : self.shape[dim]);
      }
    }
    return sizes;
  }

  TensorView self;
  std::optional<Sizes> dims;
  bool keepdim;
};

void reduce(Reduce kind, const DimShape& shape, const float* x, float* out) {
  const Reduction& loops = array_path().reductions[static_cast<std::size_t>(kind)];
  for (std::size_t at = 0; at < shape.outer; ++at) {
    const float* from = x + at * shape.count * shape.inner;
    if (shape.inner == 1) {
      out[at] = loops.row(from, shape.count);
    } else {
      loops.columns(from, shape.count, shape.inner, out + at * shape.inner);
    }
  }
}

template <Reduce kKind>
struct FloatsCall : ReductionCall {
  using ReductionCall::ReductionCall;

  bool is_valid() const { return is_float32(self) && is_plain(); }
  bool run(Results& results) const {
    reduce_all(results);
    return true;
  }

  // The result, which the caller may change.
  float* reduce_all(Results& results) const {
    float* out = results.floats(sizes());
    const std::vector<DimShape> all = passes();
    std::vector<float> from, to;
    const auto* x = static_cast<const float*>(self.data);
    for (const DimShape& shape : all) {
      const bool is_last = &shape == &all.back();
      to.resize(is_last ? 0 : shape.outer * shape.inner);
      reduce(kKind, shape, x, is_last ? out : to.data());
      std::swap(from, to);
      x = from.data();
    }
    return out;
  }
};

// Behind those arguments: dtype, which none of these kernels changes.
struct SumCall : FloatsCall<Reduce::kSum> {
  explicit SumCall(Arguments& from) : FloatsCall(from), dtype(from.optional_text()) {}

  bool is_valid() const { return !dtype && FloatsCall::is_valid(); }

  std::optional<std::string_view> dtype;
};

struct MeanCall : SumCall {
  using SumCall::SumCall;

  bool run(Results& results) const {
    std::int64_t made = 1;
    for (const std::int64_t size : sizes()) {
      made *= size;
    }
    float* out = reduce_all(results);
    const auto count = static_cast<float>(self.elements() / made);
    std::for_each_n(out, made, [count](float& sum) { sum /= count; });
    return true;
  }
};

// The sum of bools.
struct CountTrueCall : ReductionCall {
  explicit CountTrueCall(Arguments& from)
      : ReductionCall(from), dtype(from.optional_text().value_or("int64")) {}

  bool is_valid() const {
    return self.element == Element::kBool && dtype == "int64" && is_plain() && passes().size() == 1;
  }
  bool run(Results& results) const {
    void* out = results.make(Element::kInt64, sizes()).data;
    count_true(static_cast<const std::uint8_t*>(self.data), static_cast<std::int64_t*>(out),
               passes().front(), results.threads());
    return true;
  }

  std::string_view dtype;
};

constexpr KernelRow kRows[] = {
    {"count_true", 1, run_kernel<CountTrueCall>},
    {"sum", 1, run_first<CountTrueCall, SumCall>},
    {"mean", 1, run_kernel<MeanCall>},
    {"amax", 1, run_kernel<FloatsCall<Reduce::kLargest>>},
    {"amin", 1, run_kernel<FloatsCall<Reduce::kSmallest>>},
};

}  // namespace

std::span<const KernelRow> reduction_kernels() { return kRows; }

}  // namespace gt
