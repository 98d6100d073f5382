// Computations along one dimension, or along several that stand beside each other: which calls the
// kernels take.
#include "cpu/dims.h"

#include <algorithm>

#include "table/kernel.h"

namespace gt {
namespace {

// A contiguous operand with elements and dimensions.
bool is_plain(const TensorView& x) { return x.rank != 0 && !x.is_empty() && x.is_contiguous(); }

DimShape shape_around(Sizes sizes, std::size_t first, std::size_t last) {
  DimShape shape{1, 1, 1};
  for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
    (dim < first  ? shape.outer
     : dim > last ? shape.inner
                  : shape.count) *= static_cast<std::size_t>(sizes[dim]);
  }
  return shape;
}

// The place of a dimension, which may be counted from the end; the rank where there is none such.
std::size_t wrapped_dim(std::int64_t dim, std::int64_t rank) {
  const bool is_own = dim >= -rank && dim < rank;
  return static_cast<std::size_t>(!is_own ? rank : dim < 0 ? dim + rank : dim);
}

// A reduction of the dimensions from the first to the last of some, each to one number.
struct Reduced {
  DimShape shape;
  std::vector<std::int64_t> sizes;
};

// Nothing where the dimensions do not stand beside each other, or are not the operand's.
std::optional<Reduced> reduced(const TensorView& x, const std::optional<Sizes>& dims,
                               bool keepdim) {
  std::vector<std::size_t> places;
  for (const std::int64_t dim : dims.value_or(Sizes{})) {
    places.push_back(wrapped_dim(dim, x.rank));
  }
  std::sort(places.begin(), places.end());
  const auto rank = static_cast<std::size_t>(x.rank);
  if (x.rank == 0 || (dims && (places.empty() || places.back() >= rank))) {
    return std::nullopt;
  }
  for (std::size_t at = 0; at < places.size(); ++at) {
    if (places[at] != places[0] + at) {
      return std::nullopt;
    }
  }
  const std::size_t first = dims ? places.front() : 0;
  const std::size_t last = dims ? places.back() : rank - 1;
  Reduced reduction{shape_around(sizes_of(x), first, last), {}};
  for (std::size_t dim = 0; dim < rank; ++dim) {
    const bool is_kept = dim < first || dim > last;
    if (is_kept || keepdim) {
      reduction.sizes.push_back(is_kept ? x.shape[dim] : 1);
    }
  }
  return reduction;
}

// cumsum(self, dim, dtype): PyTorch adds one number after another.
struct CumsumCall {
  explicit CumsumCall(Arguments& from)
      : self(from.tensor()),
        dim(wrapped_dim(from.integer(), self.rank)),
        dtype(from.optional_text()) {}

  bool is_bool() const { return self.element == Element::kBool; }
  bool is_valid() const {
    const std::string_view own = is_bool() ? "int64" : "float32";
    return (is_bool() || is_float32(self)) && is_plain(self) &&
           dim < static_cast<std::size_t>(self.rank) && dtype.value_or(own) == own;
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const DimShape shape = shape_around(sizes_of(self), dim, dim);
    const Element element = is_bool() ? Element::kInt64 : Element::kFloat32;
    void* out = results.make(element, sizes_of(self)).data;
    if (is_bool()) {
      cumsum(static_cast<const std::uint8_t*>(self.data), static_cast<std::int64_t*>(out), shape,
             results.threads());
    } else {
      cumsum(static_cast<const float*>(self.data), static_cast<float*>(out), shape,
             results.threads());
    }
    return true;
  }

  TensorView self;
  std::size_t dim;
  std::optional<std::string_view> dtype;
};

// argmax and argmin(self, dim, keepdim).
template <Place kKind>
struct PlacesCall {
  explicit PlacesCall(Arguments& from) : self(from.tensor()) {
    const std::optional<Sizes> dim = from.dims();
    reduction = reduced(self, dim, from.flag());
  }

  bool is_valid() const {
    return is_float32(self) && is_plain(self) && reduction && reduction->shape.count <= kPlacesMost;
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    void* out = results.make(Element::kInt64, reduction->sizes).data;
    places(kKind, static_cast<const float*>(self.data), static_cast<std::int64_t*>(out),
           reduction->shape, results.threads());
    return true;
  }

  TensorView self;
  std::optional<Reduced> reduction;
};

// any and all(self, dim, keepdim).
template <Truth kKind>
struct AnyAllCall {
  explicit AnyAllCall(Arguments& from) : self(from.tensor()) {
    const std::optional<Sizes> dims = from.dims();
    reduction = reduced(self, dims, from.flag());
  }

  bool is_valid() const {
    return (self.element == Element::kBool || is_float32(self)) && is_plain(self) && reduction;
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    auto* out = static_cast<std::uint8_t*>(results.make(Element::kBool, reduction->sizes).data);
    if (self.element == Element::kBool) {
      truth(kKind, static_cast<const std::uint8_t*>(self.data), out, reduction->shape,
            results.threads());
    } else {
      truth(kKind, static_cast<const float*>(self.data), out, reduction->shape, results.threads());
    }
    return true;
  }

  TensorView self;
  std::optional<Reduced> reduction;
};

// var and std(self, dim, correction, keepdim), of any strides: PyTorch divides for each element.
template <bool kIsRoot>
struct SpreadCall {
  explicit SpreadCall(Arguments& from) : self(from.tensor()) {
    const std::optional<Sizes> dims = from.dims();
    correction = from.optional_number().value_or(1);
    reduction = reduced(self, dims, from.flag());
  }

  bool is_valid() const {
    return is_float32(self) && !self.is_empty() && reduction &&
           correction < static_cast<double>(reduction->shape.count);
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const RowMajor x(self, results.threads());
    float* out = results.floats(reduction->sizes);
    spread({correction, kIsRoot}, x.floats(), out, reduction->shape, results.threads());
    return true;
  }

  TensorView self;
  double correction;
  std::optional<Reduced> reduction;
};

constexpr KernelRow kRows[] = {
    {"cumsum", 1, run_kernel<CumsumCall>},
    {"argmax", 1, run_kernel<PlacesCall<Place::kLargest>>},
    {"argmin", 1, run_kernel<PlacesCall<Place::kSmallest>>},
    {"any", 1, run_kernel<AnyAllCall<Truth::kAny>>},
    {"all", 1, run_kernel<AnyAllCall<Truth::kAll>>},
    {"var", 1, run_kernel<SpreadCall<false>>},
    {"std", 1, run_kernel<SpreadCall<true>>},
};

}  // namespace

std::span<const KernelRow> dim_kernels() { return kRows; }

}  // namespace gt
