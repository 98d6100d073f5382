#include "table/call.h"

#include <new>

#include "cpu/strided_copy.h"

namespace gt {

static_assert(static_cast<int>(KernelElement::Bool) == static_cast<int>(Element::kBool) &&
              static_cast<int>(KernelElement::Float64) == static_cast<int>(Element::kFloat64) &&
              static_cast<int>(KernelElement::Int16) == static_cast<int>(Element::kInt16));

const KernelArgument* Arguments::next() {
  if (next_ == arguments_.size()) {
    is_well_formed_ = false;
    return nullptr;
  }
  return &arguments_[next_++];
}

TensorView Arguments::view_of(const KernelTensor& tensor) {
  if (tensor.element == KernelElement::Other) {
    is_well_formed_ = false;
    return {nullptr, Element::kFloat32, 0, nullptr, nullptr};
  }
  return {tensor.data, static_cast<Element>(tensor.element), tensor.dims, tensor.sizes,
          tensor.strides};
}

TensorView Arguments::tensor() {
  const KernelArgument* argument = next();
  if (argument != nullptr && argument->kind == ArgumentKind::Tensor) {
    return view_of(argument->tensor);
  }
  is_well_formed_ = false;
  return {nullptr, Element::kFloat32, 0, nullptr, nullptr};
}

std::optional<TensorView> Arguments::optional_tensor() {
  const KernelArgument* argument = next();
  if (argument != nullptr && argument->kind == ArgumentKind::Tensor) {
    return view_of(argument->tensor);
  }
  is_well_formed_ &= argument != nullptr && argument->kind == ArgumentKind::None;
  return std::nullopt;
}

std::optional<double> Arguments::optional_number() {
  const KernelArgument* argument = next();
  if (argument != nullptr && argument->kind == ArgumentKind::Integer) {
    return static_cast<double>(argument->integer);
  }
  if (argument != nullptr && argument->kind == ArgumentKind::Real) {
    return argument->real;
  }
  is_well_formed_ &= argument != nullptr && argument->kind == ArgumentKind::None;
  return std::nullopt;
}

double Arguments::number() {
  const std::optional<double> number = optional_number();
  is_well_formed_ &= number.has_value();
  return number.value_or(0);
}

std::int64_t Arguments::integer() {
  const KernelArgument* argument = next();
  if (argument != nullptr && argument->kind == ArgumentKind::Integer) {
    return argument->integer;
  }
  is_well_formed_ = false;
  return 0;
}

Sizes Arguments::integers() {
  const std::optional<Sizes> numbers = dims();
  is_well_formed_ &= numbers.has_value();
  return numbers.value_or(Sizes{});
}

std::optional<Sizes> Arguments::dims() {
  const KernelArgument* argument = next();
  if (argument != nullptr && argument->kind == ArgumentKind::Integers) {
    return Sizes{argument->integers.numbers, argument->integers.count};
  }
  if (argument != nullptr && argument->kind == ArgumentKind::Integer) {
    return Sizes{&argument->integer, 1};
  }
  is_well_formed_ &= argument != nullptr && argument->kind == ArgumentKind::None;
  return std::nullopt;
}

std::optional<std::string_view> Arguments::optional_text() {
  const KernelArgument* argument = next();
  if (argument != nullptr && argument->kind == ArgumentKind::Text) {
    return std::string_view(argument->text);
  }
  is_well_formed_ &= argument != nullptr && argument->kind == ArgumentKind::None;
  return std::nullopt;
}

bool Arguments::has_none_left() {
  const std::span<const KernelArgument> rest = arguments_.subspan(next_);
  next_ = arguments_.size();
  return std::ranges::all_of(
      rest, [](const KernelArgument& one) { return one.kind == ArgumentKind::None; });
}

TensorView Results::make(Element element, Sizes sizes) {
  void* data = nullptr;
  const auto rank = static_cast<std::int32_t>(sizes.size());
  if (caller_.make_result(caller_.context, static_cast<KernelElement>(element), sizes.data(), rank,
                          &data) != 0) {
    throw std::bad_alloc();
  }
  ++count_;
  return {data, element, rank, sizes.data(), nullptr};
}

bool is_float32(const TensorView& view) { return view.element == Element::kFloat32; }

bool is_float32(const std::optional<TensorView>& view) { return !view || is_float32(*view); }

Contiguous::Contiguous(const TensorView& view)
    : strides_(static_cast<std::size_t>(view.rank)), view_(view) {
  std::int64_t stride = 1;
  for (std::size_t dim = strides_.size(); dim-- > 0; stride *= view.shape[dim]) {
    strides_[dim] = stride;
  }
  view_.strides = strides_.data();
}

RowMajor::RowMajor(const TensorView& view, int threads) : data_(view.data) {
  if (view.is_contiguous()) {
    return;
  }
  const std::size_t bytes = static_cast<std::size_t>(view.elements()) * element_bytes(view.element);
  copy_.reset(new std::byte[bytes]);
  std::vector<StridedDim> dims;
  for (int dim = 0; dim < view.rank; ++dim) {
    dims.push_back({view.size(dim), view.stride(dim)});
  }
  strided_copy(element_bytes(view.element), view.data, dims, copy_.get(), threads);
  data_ = copy_.get();
}

RowMajor::RowMajor(const std::optional<TensorView>& view, int threads) {
  if (view) {
    *this = RowMajor(*view, threads);
  }
}

}  // namespace gt
