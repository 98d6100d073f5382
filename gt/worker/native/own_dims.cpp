// What GT's own kernels compute along one dimension, or several that stand beside each other.
#include <ATen/Parallel.h>
#include <ATen/Tensor.h>

#include "own.h"

namespace gt {
namespace {

using at::Tensor;

// [outer, count, inner]: `count` numbers along the dimensions.
struct DimShape {
  int64_t outer = 1;
  int64_t count = 1;
  int64_t inner = 1;
};

void call_along(KernelCall kernel, const Tensor& x, const Tensor& out, const DimShape& shape,
                double first = 0, double second = 0) {
  const auto number = [](int64_t size) { return static_cast<double>(size); };
  call(kernel, {given(x), given(out)},
       {number(shape.outer), number(shape.count), number(shape.inner), first, second},
       at::get_num_threads());
}

DimShape shape_around(at::IntArrayRef sizes, size_t first, size_t last) {
  DimShape shape;
  for (size_t dim = 0; dim < sizes.size(); ++dim)
    (dim < first ? shape.outer : dim > last ? shape.inner : shape.count) *= sizes[dim];
  return shape;
}

// Where a dimension is, counted from the end too; the rank where it is none.
size_t wrapped_dim(int64_t dim, int64_t rank) {
  int64_t place = dim < 0 ? dim + rank : dim;
  return static_cast<size_t>(place < 0 || place >= rank ? rank : place);
}

// What a reduction is of: contiguous, with elements and dimensions.
bool is_plain(const Tensor& x) { return x.is_contiguous() && x.numel() != 0 && x.dim() != 0; }

// The dimensions from `first` to `last` reduced to one number each.
struct Reduced {
  DimShape shape;
  std::vector<int64_t> sizes;
};

Reduced reduced(at::IntArrayRef sizes, size_t first, size_t last, bool keepdim) {
  Reduced made{shape_around(sizes, first, last), {}};
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    bool is_kept = dim < first || dim > last;
    if (is_kept || keepdim) made.sizes.push_back(is_kept ? sizes[dim] : 1);
  }
  return made;
}

// Over these dimensions, or over all; none where they are not beside each other, or not its own.
std::optional<Reduced> reduced_over(const Tensor& x, const c10::IValue& dims, bool keepdim) {
  if (dims.isNone()) return reduced(x.sizes(), 0, x.sizes().size() - 1, keepdim);
  std::vector<size_t> places;
  for (int64_t dim : dims.toIntVector()) places.push_back(wrapped_dim(dim, x.dim()));
  if (places.empty()) return std::nullopt;
  std::sort(places.begin(), places.end());
  for (size_t at = 0; at < places.size(); ++at) {
    if (places[at] != places[0] + at) return std::nullopt;
  }
  if (places.back() >= x.sizes().size()) return std::nullopt;
  return reduced(x.sizes(), places.front(), places.back(), keepdim);
}

}  // namespace

// self, dim, dtype or none.
bool cumsum(const Values& values, Values& results) {
  Tensor x = tensor_of(values[0]);
  bool is_bool = is_of(at::kBool, x);
  at::ScalarType dtype = is_bool ? at::kLong : at::kFloat;
  if (kernels.cumsum == nullptr || !(is_bool || is_float(x)) || !is_plain(x) ||
      !(values[2].isNone() || values[2].toScalarType() == dtype))
    return false;
  size_t dim = wrapped_dim(values[1].toInt(), x.dim());
  if (dim == x.sizes().size()) return false;
  Tensor out = at::empty(x.sizes(), x.options().dtype(dtype));
  call_along(kernels.cumsum, x, out, shape_around(x.sizes(), dim, dim), is_bool ? 1 : 0);
  results = {out};
  return true;
}

// self, dims or none, keepdim, dtype or none: of bools.
bool count_true(const Values& values, Values& results) {
  Tensor x = tensor_of(values[0]);
  bool is_count = values[3].isNone() || values[3].toScalarType() == at::kLong;
  if (kernels.count_true == nullptr || !is_count || !is_of(at::kBool, x) || !is_plain(x))
    return false;
  std::optional<Reduced> made = reduced_over(x, values[1], values[2].toBool());
  if (!made) return false;
  Tensor out = at::empty(made->sizes, x.options().dtype(at::kLong));
  call_along(kernels.count_true, x, out, made->shape);
  results = {out};
  return true;
}

// self, dim or none, keepdim.
bool places(Own own, const Values& values, Values& results) {
  Tensor x = tensor_of(values[0]);
  if (kernels.places == nullptr || !is_float(x) || !is_plain(x)) return false;
  size_t rank = x.sizes().size();
  size_t dim = values[1].isNone() ? 0 : wrapped_dim(values[1].toInt(), x.dim());
  if (dim == rank) return false;
  Reduced made = reduced(x.sizes(), dim, values[1].isNone() ? rank - 1 : dim, values[2].toBool());
  if (made.shape.count > INT32_MAX) return false;
  Tensor out = at::empty(made.sizes, x.options().dtype(at::kLong));
  call_along(kernels.places, x, out, made.shape, own == Own::Argmin ? 1 : 0);
  results = {out};
  return true;
}

// self, dims or none, keepdim.
bool truth(Own own, const Values& values, Values& results) {
  Tensor x = tensor_of(values[0]);
  bool is_bool = is_of(at::kBool, x);
  if (kernels.truth == nullptr || !(is_bool || is_float(x)) || !is_plain(x)) return false;
  std::optional<Reduced> made = reduced_over(x, values[1], values[2].toBool());
  if (!made) return false;
  Tensor out = at::empty(made->sizes, x.options().dtype(at::kBool));
  call_along(kernels.truth, x, out, made->shape, is_bool ? 1 : 0, own == Own::All ? 1 : 0);
  results = {out};
  return true;
}

// self, dims or none, correction, keepdim: as in gt/worker/torch_reductions.py, of any strides.
bool spread(Own own, const Values& values, Values& results) {
  Tensor x = tensor_of(values[0]);
  if (kernels.spread == nullptr || !is_float(x) || x.numel() == 0 || x.dim() == 0) return false;
  double correction = values[2].isNone() ? 1 : values[2].toScalar().toDouble();
  std::optional<Reduced> made = reduced_over(x, values[1], values[3].toBool());
  if (!made || !(correction < static_cast<double>(made->shape.count))) return false;
  Tensor out = empty(made->sizes, x);
  call_along(kernels.spread, x.contiguous(), out, made->shape, correction, own == Own::Std ? 1 : 0);
  results = {out};
  return true;
}

}  // namespace gt
