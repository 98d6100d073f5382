// Choices by bools between elements of any dtype: their bits are moved, by masks, where ATen
// branches on each bool. Those of float32 are steps of chains (joined.cpp).
#include <ATen/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "loops.h"

namespace gt {
namespace {

using at::Tensor;

// Bools that are repeated, at least: of fewer a loop is over before it is begun.
constexpr int64_t PERIOD_MIN = 64;

// An operand that is chosen from: a tensor, or a number as one element.
struct Chosen {
  const c10::TensorImpl* tensor = nullptr;
  uint64_t number = 0;
};

template <class T>
bool put(Chosen& chosen, T value) {
  std::memcpy(&chosen.number, &value, sizeof value);
  return true;
}

template <class T>
bool put_integer(Chosen& chosen, int64_t value) {
  return static_cast<int64_t>(static_cast<T>(value)) == value && put(chosen, static_cast<T>(value));
}

// Rounded as ATen does; a number beyond the dtype's is refused by some of its operators.
template <class T>
bool put_real(Chosen& chosen, double value) {
  bool fits =
      !(std::abs(value) > static_cast<double>(std::numeric_limits<T>::max())) || std::isinf(value);
  return fits && put(chosen, static_cast<T>(value));
}

// False where the dtype does not have the number, or would be another beside it.
bool put_number(Chosen& chosen, const Operand& operand, at::ScalarType dtype) {
  if (dtype == at::kBool) return operand.kind == Kind::Bool && put(chosen, operand.bits != 0);
  auto whole = std::bit_cast<int64_t>(operand.bits);
  if (at::isIntegralType(dtype, false)) {
    if (operand.kind != Kind::Int) return false;
    if (dtype == at::kLong) return put(chosen, whole);
    if (dtype == at::kInt) return put_integer<int32_t>(chosen, whole);
    return dtype == at::kByte && put_integer<uint8_t>(chosen, whole);
  }
  if (operand.kind != Kind::Int && operand.kind != Kind::Float) return false;
  double value =
      operand.kind == Kind::Int ? static_cast<double>(whole) : std::bit_cast<double>(operand.bits);
  if (dtype == at::kDouble) return put(chosen, value);
  if (dtype == at::kBFloat16) return put_real<c10::BFloat16>(chosen, value);
  return dtype == at::kHalf && put_real<c10::Half>(chosen, value);
}

bool is_row_major(const c10::TensorImpl& tensor) {
  return tensor.device_type() == c10::DeviceType::CPU && tensor.layout() == c10::kStrided &&
         tensor.is_contiguous() && !tensor.key_set().has(c10::DispatchKey::Negative);
}

at::ScalarType dtype_of(const c10::TensorImpl& tensor) {
  return c10::typeMetaToScalarType(tensor.dtype());
}

bool is_larger(const c10::TensorImpl* one, const c10::TensorImpl* other) {
  if (one == nullptr || other == nullptr) return other == nullptr;
  return one->numel() != other->numel() ? one->numel() > other->numel() : one->dim() > other->dim();
}

// True if the condition has the last sizes of `like`, and is repeated over the others.
bool is_repeated(const c10::TensorImpl& condition, const c10::TensorImpl& like) {
  at::IntArrayRef own = condition.sizes();
  at::IntArrayRef sizes = like.sizes();
  if (own.size() > sizes.size()) return false;
  while (!own.empty() && own.front() == 1) own = own.slice(1);
  return own == sizes.slice(sizes.size() - own.size()) &&
         (condition.numel() == like.numel() || condition.numel() >= PERIOD_MIN);
}

bool fits(const Chosen& chosen, const c10::TensorImpl& like, at::ScalarType dtype) {
  if (chosen.tensor == nullptr) return true;
  const c10::TensorImpl& tensor = *chosen.tensor;
  bool is_one = tensor.numel() == 1 && tensor.dim() <= like.dim();
  return is_row_major(tensor) && dtype_of(tensor) == dtype &&
         (is_one || tensor.sizes() == like.sizes());
}

KernelTensor as_given(const Chosen& chosen) {
  if (chosen.tensor == nullptr) return {const_cast<uint64_t*>(&chosen.number), nullptr, nullptr, 0};
  const c10::TensorImpl& tensor = *chosen.tensor;
  return {const_cast<void*>(tensor.data()), tensor.sizes().data(), tensor.strides().data(),
          static_cast<int32_t>(tensor.dim())};
}

bool is_chosen(at::ScalarType dtype) {
  constexpr at::ScalarType DTYPES[] = {at::kBool, at::kByte, at::kChar,     at::kShort, at::kInt,
                                       at::kLong, at::kHalf, at::kBFloat16, at::kDouble};
  return std::find(std::begin(DTYPES), std::end(DTYPES), dtype) != std::end(DTYPES);
}

// Condition, what is chosen where it holds, and elsewhere.
struct Sides {
  const c10::TensorImpl* condition;
  Chosen x, y;

  const c10::TensorImpl* like() const {
    const c10::TensorImpl* largest = is_larger(x.tensor, y.tensor) ? x.tensor : y.tensor;
    return is_larger(condition, largest) ? condition : largest;
  }
};

// Those of a call that kernels take, with the result's dtype; none of others.
std::optional<Sides> sides_of(const Operand& condition, const Operand& x, const Operand& y,
                              at::ScalarType& dtype) {
  if (condition.kind != Kind::Tensor) return std::nullopt;
  Sides sides{impl_of(condition), {}, {}};
  if (x.kind == Kind::Tensor) sides.x.tensor = impl_of(x);
  if (y.kind == Kind::Tensor) sides.y.tensor = impl_of(y);
  const c10::TensorImpl* typed =
      is_larger(sides.x.tensor, sides.y.tensor) ? sides.x.tensor : sides.y.tensor;
  if (typed == nullptr) return std::nullopt;
  dtype = dtype_of(*typed);
  bool is_taken = is_chosen(dtype) && dtype_of(*sides.condition) == at::kBool &&
                  is_row_major(*sides.condition) &&
                  (sides.x.tensor != nullptr || put_number(sides.x, x, dtype)) &&
                  (sides.y.tensor != nullptr || put_number(sides.y, y, dtype));
  if (!is_taken) return std::nullopt;
  const c10::TensorImpl& like = *sides.like();
  bool fit = fits(sides.x, like, dtype) && fits(sides.y, like, dtype) &&
             is_repeated(*sides.condition, like) && like.numel() != 0;
  return fit ? std::optional(sides) : std::nullopt;
}

}  // namespace

Tensor chosen(const Call& call, const Operand* operands) {
  const auto operand = [&](size_t place) -> const Operand& {
    return operands[call.arguments[place].index];
  };
  bool is_fill = call.loop == LoopOperator::MaskedFill;
  at::ScalarType dtype = at::kFloat;
  std::optional<Sides> sides = is_fill ? sides_of(operand(1), operand(2), operand(0), dtype)
                                       : sides_of(operand(0), operand(1), operand(2), dtype);
  if (loops.choice == nullptr || !sides) return {};
  if (is_fill && sides->x.tensor != nullptr && sides->x.tensor->dim() != 0) return {};
  const c10::TensorImpl& like = *sides->like();
  Tensor out;
  if (call.is_over) {
    if (sides->y.tensor == nullptr || sides->y.tensor->sizes() != like.sizes()) return {};
    if (sides->x.tensor != nullptr) {
      // It may be a part of what is written over.
      std::memcpy(&sides->x.number, sides->x.tensor->data(), c10::elementSize(dtype));
      sides->x.tensor = nullptr;
    }
    out = counted(operand(0));
    out.unsafeGetTensorImpl()->bump_version();
  } else {
    out = at::empty(like.sizes(), at::TensorOptions().dtype(dtype));
  }
  KernelTensor to = kernel_tensor(*out.unsafeGetTensorImpl());
  to.data = out.mutable_data_ptr();
  KernelTensor condition{const_cast<void*>(sides->condition->data()),
                         sides->condition->sizes().data(), sides->condition->strides().data(),
                         static_cast<int32_t>(sides->condition->dim())};
  gt::call(loops.choice, {to, condition, as_given(sides->x), as_given(sides->y)},
           {static_cast<double>(c10::elementSize(dtype))}, threads_for(out.numel()));
  return out;
}

}  // namespace gt
