// Loops for a few numbers in a row. ATen's preparations (an iterator, a scalar cast to the
// operand's dtype as a tensor of its own) cost many times what adding four numbers does. Only what
// IEEE 754 rounds once, or not at all, is here: a loop then has every bit of ATen's.
#include <ATen/EmptyTensor.h>
#include <ATen/Tensor.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>
#include <utility>

#include "frame.h"

namespace gt {

namespace {

// Elements beyond which ATen's vectors have made up for its preparations.
constexpr int64_t ELEMENTS_MAX = 2048;
// Numbers that ATen raises to by these operators: those of gt/worker/native/values.py but for
// roots.
constexpr std::pair<double, LoopOperator> POWERS[] = {
    {2.0, LoopOperator::Square}, {-0.5, LoopOperator::Rsqrt}, {-1.0, LoopOperator::Reciprocal}};

bool is_constant(const Argument& argument, int64_t value) {
  return argument.source == Source::Constant && argument.constant.isInt() &&
         argument.constant.toInt() == value;
}

// An operand as the loops read it: `count` numbers from `data` on, or the number itself.
struct Side {
  const c10::TensorImpl* tensor = nullptr;
  const void* data = nullptr;
  Operand number{Kind::Absent, 0};

  bool is_one() const { return tensor == nullptr || tensor->dim() == 0; }
};

// Row-major and without gaps, down to the strides of dimensions of one element: the result's
// strides follow from them.
bool is_plain(const c10::TensorImpl& tensor) {
  if (!tensor.is_contiguous() || tensor.device_type() != c10::DeviceType::CPU) return false;
  if (tensor.layout() != c10::kStrided || tensor.key_set().has(c10::DispatchKey::Negative))
    return false;
  int64_t stride = 1;
  c10::IntArrayRef sizes = tensor.sizes();
  c10::IntArrayRef strides = tensor.strides();
  for (size_t dim = sizes.size(); dim-- > 0; stride *= sizes[dim]) {
    if (strides[dim] != stride) return false;
  }
  return stride > 0 && stride <= ELEMENTS_MAX;
}

bool side_of(const Argument& argument, const Operand* operands, Side& side) {
  const Operand& operand = operands[argument.index];
  if (operand.kind != Kind::Tensor) {
    side.number = operand;
    return operand.kind != Kind::Absent;
  }
  side.tensor = std::bit_cast<const c10::TensorImpl*>(operand.bits);
  if (!is_plain(*side.tensor)) return false;
  side.data = side.tensor->data();
  return true;
}

// A number as an element of that type, as ATen casts the tensor that it makes of one.
template <typename T>
T element(const Operand& number) {
  if (number.kind == Kind::Float) return static_cast<T>(std::bit_cast<double>(number.bits));
  if (number.kind == Kind::Bool) return static_cast<T>(number.bits != 0);
  return static_cast<T>(std::bit_cast<int64_t>(number.bits));
}

template <typename T>
T first_of(const Side& side) {
  return side.tensor == nullptr ? element<T>(side.number) : *static_cast<const T*>(side.data);
}

template <typename T, typename Out, typename Function>
void unary(const Side& side, Out* out, int64_t count, Function function) {
  const T* in = static_cast<const T*>(side.data);
  for (int64_t i = 0; i < count; ++i) out[i] = function(in[i]);
}

template <typename T, typename Out, typename Function>
void binary(const Side& lhs, const Side& rhs, Out* out, int64_t count, Function function) {
  if (lhs.is_one()) {
    T one = first_of<T>(lhs);
    if (rhs.is_one()) {
      out[0] = function(one, first_of<T>(rhs));
      return;
    }
    unary<T>(rhs, out, count, [=](T other) { return function(one, other); });
  } else if (rhs.is_one()) {
    T one = first_of<T>(rhs);
    unary<T>(lhs, out, count, [=](T other) { return function(other, one); });
  } else {
    const T* left = static_cast<const T*>(lhs.data);
    const T* right = static_cast<const T*>(rhs.data);
    for (int64_t i = 0; i < count; ++i) out[i] = function(left[i], right[i]);
  }
}

template <typename T>
void compare(LoopOperator loop, const Side& lhs, const Side& rhs, bool* out, int64_t count) {
  switch (loop) {
    case LoopOperator::Eq:
      binary<T>(lhs, rhs, out, count, [](T a, T b) { return a == b; });
      return;
    case LoopOperator::Ne:
      binary<T>(lhs, rhs, out, count, [](T a, T b) { return a != b; });
      return;
    case LoopOperator::Lt:
      binary<T>(lhs, rhs, out, count, [](T a, T b) { return a < b; });
      return;
    case LoopOperator::Le:
      binary<T>(lhs, rhs, out, count, [](T a, T b) { return a <= b; });
      return;
    case LoopOperator::Gt:
      binary<T>(lhs, rhs, out, count, [](T a, T b) { return a > b; });
      return;
    case LoopOperator::Ge:
      binary<T>(lhs, rhs, out, count, [](T a, T b) { return a >= b; });
      return;
    default:
      return;
  }
}

template <typename T>
void compute(LoopOperator loop, const Side& lhs, const Side& rhs, T* out, int64_t count) {
  switch (loop) {
    case LoopOperator::Add:
      binary<T>(lhs, rhs, out, count, [](T a, T b) { return a + b; });
      return;
    case LoopOperator::Sub:
      binary<T>(lhs, rhs, out, count, [](T a, T b) { return a - b; });
      return;
    case LoopOperator::Mul:
      binary<T>(lhs, rhs, out, count, [](T a, T b) { return a * b; });
      return;
    case LoopOperator::Div:
      binary<T>(lhs, rhs, out, count, [](T a, T b) { return a / b; });
      return;
    case LoopOperator::ReluBackward:
      binary<T>(lhs, rhs, out, count, [](T grad, T x) { return x <= 0 ? T(0) : grad; });
      return;
    case LoopOperator::Neg:
      unary<T>(lhs, out, count, [](T x) { return -x; });
      return;
    case LoopOperator::Abs:
      unary<T>(lhs, out, count, [](T x) { return std::abs(x); });
      return;
    case LoopOperator::Square:
      unary<T>(lhs, out, count, [](T x) { return x * x; });
      return;
    case LoopOperator::Reciprocal:
      unary<T>(lhs, out, count, [](T x) { return T(1) / x; });
      return;
    case LoopOperator::Rsqrt:
      unary<T>(lhs, out, count, [](T x) { return T(1) / std::sqrt(x); });
      return;
    case LoopOperator::Relu:
      unary<T>(lhs, out, count, [](T x) { return x < 0 ? T(0) : x; });
      return;
    default:
      return;
  }
}

template <typename T>
void run_as(LoopOperator loop, const Side& lhs, const Side& rhs, void* out, int64_t count) {
  if (has(loop, BOOLS)) {
    compare<T>(loop, lhs, rhs, static_cast<bool*>(out), count);
    return;
  }
  compute<T>(loop, lhs, rhs, static_cast<T*>(out), count);
}

// True if both are of one dtype, which is the result's before a comparison, and of one shape or one
// element.
bool agree(const Side& lhs, const Side& rhs) {
  if (lhs.tensor == nullptr || rhs.tensor == nullptr) return true;
  if (lhs.tensor->dtype() != rhs.tensor->dtype()) return false;
  return lhs.is_one() || rhs.is_one() || lhs.tensor->sizes() == rhs.tensor->sizes();
}

}  // namespace

// to.dtype(self, float32, ...), as rows.txt has it.
static bool casts_to_float(const c10::OperatorHandle& op, const std::vector<Argument>& arguments) {
  return op.schema().overload_name() == "dtype" && arguments.size() > 1 &&
         arguments[0].source == Source::Operand &&
         is_constant(arguments[1], static_cast<int64_t>(at::kFloat));
}

LoopOperator loop_of(const c10::OperatorHandle& op, const std::vector<Argument>& arguments) {
  std::string_view name = op.schema().name();
  name.remove_prefix(std::string_view("aten::").size());
  if (op.schema().is_mutable() && name.ends_with('_')) name.remove_suffix(1);
  auto facts = std::find_if(std::begin(LOOP_FACTS), std::end(LOOP_FACTS),
                            [&](const LoopFacts& one) { return one.aten == name; });
  if (facts == std::end(LOOP_FACTS) || arguments.size() < facts->operands)
    return LoopOperator::None;
  if (facts->op == LoopOperator::ToFloat) {
    return casts_to_float(op, arguments) ? facts->op : LoopOperator::None;
  }
  for (size_t i = 0; i < facts->operands; ++i) {
    if (!is_given(arguments[i])) return LoopOperator::None;
  }
  // The argument behind is the second operand's factor for add and sub, the threshold for
  // threshold_backward.
  int64_t neutral = facts->op == LoopOperator::ReluBackward ? 0 : 1;
  for (size_t i = facts->operands; i < arguments.size(); ++i) {
    if (!is_constant(arguments[i], neutral)) return LoopOperator::None;
  }
  return facts->op;
}

LoopOperator power_of(const Call& call, const Operand* operands) {
  const Operand& base = operands[call.arguments[0].index];
  const Operand& exponent = operands[call.arguments[1].index];
  if (base.kind != Kind::Tensor || exponent.kind == Kind::Tensor) return LoopOperator::None;
  double power = element<double>(exponent);
  for (auto [known, loop] : POWERS) {
    if (known == power) return loop;
  }
  return LoopOperator::None;
}

bool run_small(const Call& call, const Operand* operands, c10::IValue& result) {
  LoopOperator loop = call.loop == LoopOperator::Pow ? power_of(call, operands) : call.loop;
  if (!has(loop, FEW)) return false;
  bool is_binary = operands_of(loop) == 2;
  Side lhs;
  Side rhs;
  if (!side_of(call.arguments[0], operands, lhs)) return false;
  if (is_binary && !side_of(call.arguments[1], operands, rhs)) return false;
  if (!agree(lhs, rhs)) return false;
  const c10::TensorImpl* like = lhs.is_one() && rhs.tensor != nullptr ? rhs.tensor : lhs.tensor;
  if (like == nullptr) return false;
  auto dtype = c10::typeMetaToScalarType(like->dtype());
  if (dtype != at::kFloat && dtype != at::kDouble) return false;
  at::Tensor out;
  if (call.is_over) {
    if (lhs.tensor == nullptr || lhs.tensor->sizes() != like->sizes()) return false;
    auto* written = const_cast<c10::TensorImpl*>(lhs.tensor);
    written->bump_version();
    out = at::Tensor(TensorPointer::reclaim_copy(written));
  } else {
    out = at::detail::empty_cpu(like->sizes(), has(loop, BOOLS) ? at::kBool : dtype);
  }
  void* data = out.mutable_data_ptr();
  if (call.is_over) lhs.data = data;
  if (dtype == at::kFloat) {
    run_as<float>(loop, lhs, rhs, data, like->numel());
  } else {
    run_as<double>(loop, lhs, rhs, data, like->numel());
  }
  result = std::move(out);
  return true;
}

}  // namespace gt
