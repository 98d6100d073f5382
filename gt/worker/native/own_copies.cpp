// Contiguous copies of tensors whose dimensions stand in another order: by tiles, where ATen goes
// through one side by columns.
#include <ATen/Parallel.h>
#include <ATen/Tensor.h>
#include <ATen/TensorUtils.h>
#include <ATen/ops/clone.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "own.h"

namespace gt {
namespace {

using at::Tensor;

// Elements from which on tiles take less time: below, all of it is in the first cache.
constexpr int64_t TURNED_MIN = 4096;
// Bytes of a register, whose elements are turned as rows and columns of a square.
constexpr int64_t REGISTER_BYTES = 16;

bool has_copied_bytes(const Tensor& x) {
  return x.is_cpu() && x.layout() == at::kStrided && !x.is_neg() &&
         !c10::isComplexType(x.scalar_type()) && !c10::isQIntType(x.scalar_type()) &&
         x.element_size() <= 8;
}

// Whether what is beside each other in the copy is not so here, but something else is, and both
// dimensions have a square or more. gt/worker/torch_copies.py has the same.
bool is_turned(const Tensor& x) {
  if (x.is_contiguous() || x.numel() < TURNED_MIN || !has_copied_bytes(x)) return false;
  const int64_t least = std::max<int64_t>(4, REGISTER_BYTES / x.element_size());
  at::IntArrayRef sizes = x.sizes();
  at::IntArrayRef strides = x.strides();
  size_t last = sizes.size() - 1;
  while (sizes[last] == 1) --last;
  if (strides[last] <= 1 || sizes[last] < least) return false;
  for (size_t dim = 0; dim < last; ++dim) {
    if (strides[dim] == 1 && sizes[dim] >= least) return true;
  }
  return false;
}

}  // namespace

Tensor row_major_copy(const Tensor& x) {
  if (kernels.strided_copy == nullptr || !is_turned(x))
    return at::clone(x, c10::MemoryFormat::Contiguous);
  Tensor out = at::empty(x.sizes(), x.options());
  call(kernels.strided_copy, {given(x), given(out)}, {static_cast<double>(x.element_size())},
       at::get_num_threads());
  return out;
}

Tensor row_major(const Tensor& x) { return x.is_contiguous() ? x : row_major_copy(x); }

// self, sizes: a copy where no strides show it.
bool reshape(const Values& values, Values& results) {
  Tensor x = tensor_of(values[0]);
  if (!x.defined() || kernels.strided_copy == nullptr || !is_turned(x)) return false;
  std::vector<int64_t> sizes = values[1].toIntVector();
  bool is_stated =
      std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size > 0; }) &&
      std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>()) == x.numel();
  if (!is_stated || at::detail::computeStride(x.sizes(), x.strides(), at::IntArrayRef(sizes)))
    return false;
  results = {row_major_copy(x).view(sizes)};
  return true;
}

}  // namespace gt
