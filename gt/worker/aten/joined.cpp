// Several instructions in one pass over memory, where no bit tells it from one after the other: a
// product with relu or its gradient behind it, and chains of elementwise operators
// (csrc/cpu/chain.h). And single ones by the same loops, for which ATen has no vectors: choices,
// comparisons, casts.
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "frame.h"
#include "loops.h"

namespace gt {

namespace {

// Steps of a chain at most; operands of a step at most, and the numbers that describe it.
constexpr size_t STEPS_MAX = CHAIN_STEPS_MAX;
constexpr size_t SIDES = 3;
constexpr size_t NUMBERS = 1 + 2 * SIDES;
// Elements from which on loops take less time than ATen's of one number after the other.
constexpr int64_t MANY_MIN = 1024;

// The one call of a program that is nothing else.
const Call* only_call(const Program& program) {
  bool is_one = program.calls.size() == 1 && program.guards.empty() && program.stated.empty() &&
                program.results.size() == 1;
  return is_one ? &program.calls.front() : nullptr;
}

// A product with what follows it, in one pass.
at::Tensor joined_product(const JoinedStep* steps) {
  const Call* product = only_call(*steps[0].program);
  const Call* next = only_call(*steps[1].program);
  if (next == nullptr) return {};
  std::vector<c10::IValue> results;
  Frame frame{steps[0].operands, results};
  KernelInput input;
  if (!input.push(product->kernel.arguments, frame)) return {};
  if (next->loop == LoopOperator::Relu) {
    input.from_end(0).kind = ArgumentKind::Text;
    input.from_end(0).text = "relu";
  } else if (next->loop == LoopOperator::ReluBackward && steps[1].from == 1) {
    const Operand& gate = steps[1].operands[next->arguments[1].index];
    if (gate.kind != Kind::Tensor) return {};
    input.from_end(1).kind = ArgumentKind::Tensor;
    input.from_end(1).tensor = kernel_tensor(*impl_of(gate));
  } else {
    return {};
  }
  return run_kernel(product->kernel.entry, input, results) ? results[0].toTensor() : at::Tensor();
}

// A call as a step of a chain: the kernel's operator, and its operands as arguments of the call.
struct Form {
  LoopOperator code;
  std::array<uint8_t, SIDES> arguments;
  size_t sides;
};

std::optional<Form> form_of(LoopOperator loop) {
  if (!has(loop, JOINS)) return std::nullopt;
  if (loop == LoopOperator::MaskedFill) return Form{LoopOperator::Where, {1, 2, 0}, 3};
  return Form{loop, {0, 1, 2}, static_cast<size_t>(operands_of(loop))};
}

// A tensor whose elements loops read; nothing of another dtype, or elsewhere.
std::optional<KernelTensor> loop_tensor(const c10::TensorImpl& tensor) {
  KernelTensor read = kernel_tensor(tensor);
  bool is_read = read.element == KernelElement::Float32 || read.element == KernelElement::Bool ||
                 read.element == KernelElement::Int32 || read.element == KernelElement::Int64;
  return is_read ? std::optional(read) : std::nullopt;
}

// A number as ATen takes it beside float32, rounded once; nothing where it has no such value, which
// some of ATen's operators refuse.
std::optional<float> number_of(const Operand& operand) {
  if (operand.kind == Kind::Int) return static_cast<float>(std::bit_cast<int64_t>(operand.bits));
  if (operand.kind != Kind::Float) return std::nullopt;
  return static_cast<float>(std::bit_cast<double>(operand.bits));
}

bool is_beyond(const Operand& operand) {
  if (operand.kind != Kind::Float) return false;
  double value = std::abs(std::bit_cast<double>(operand.bits));
  return value > std::numeric_limits<float>::max() && value != HUGE_VAL;
}

// The steps of a chain as its kernel takes them.
class Chain {
 public:
  // False where the instruction is not for a chain, and those before it are all. `from`: its
  // operands, a bit each, that are the result so far.
  bool push(const Call& call, const Operand* operands, uint64_t from) {
    if (count_ == STEPS_MAX || (count_ > 0 && call.is_over)) return false;
    LoopOperator loop = call.loop == LoopOperator::Pow ? power_of(call, operands) : call.loop;
    std::optional<Form> form = form_of(loop);
    if (!form || (loop == LoopOperator::MaskedFill && is_beyond(operands[call.arguments[2].index])))
      return false;
    begin(form->code);
    for (size_t side = 0; side < form->sides; ++side) {
      size_t place = call.arguments[form->arguments[side]].index;
      if (!(from >> place & 1 ? result(side) : given(side, operands[place]))) return false;
    }
    // The first one's largest operand says the result's shape; of float32 alone a result is.
    if (count_ == 0) {
      if (largest_ == nullptr || !has_float_) return false;
      if (call.is_over) over_ = operands[call.arguments[0].index];
    }
    end();
    return true;
  }

  // One step of these operands, of which at least one is float32.
  void begin(LoopOperator code) {
    tensors_new_ = tensors_;
    numbers_new_ = &numbers_[2 + NUMBERS * count_];
    *numbers_new_ = static_cast<double>(code);
  }
  bool result(size_t side) { return say(side, ChainSource::Result, 0); }
  bool given(size_t side, const Operand& operand) {
    if (operand.kind == Kind::Tensor)
      return take(*impl_of(operand)) && say(side, ChainSource::Tensor, 0);
    std::optional<float> number = number_of(operand);
    return number && say(side, ChainSource::Number, *number);
  }
  bool number(size_t side, float value) { return say(side, ChainSource::Number, value); }
  void end() {
    tensors_ = tensors_new_;
    ++count_;
  }

  // Runs steps and returns how many have run, `least` or more or none, with `out` the result.
  size_t run(at::Tensor& out, size_t least, at::ScalarType dtype = at::kFloat) {
    if (count_ < least) return 0;
    if (over_ && (impl_of(*over_)->dtype() != caffe2::TypeMeta::Make<float>() ||
                  impl_of(*over_)->sizes() != largest_->sizes()))
      return 0;
    out = over_ ? counted(*over_) : at::empty(largest_->sizes(), at::TensorOptions().dtype(dtype));
    if (over_) out.unsafeGetTensorImpl()->bump_version();
    given_[0] = {out.mutable_data_ptr(), out.sizes().data(), out.strides().data(),
                 static_cast<int32_t>(out.dim()),
                 dtype == at::kBool ? KernelElement::Bool : KernelElement::Float32};
    numbers_[0] = static_cast<double>(count_);
    numbers_[1] = static_cast<double>(least);
    int threads = threads_for(out.numel() * static_cast<int64_t>(count_));
    char text[ERROR_BYTES];
    int ran = loops.chain(given_.data(), numbers_.data(), threads, text, sizeof text);
    TORCH_CHECK(ran >= 0, text);
    return static_cast<size_t>(ran);
  }

 private:
  bool say(size_t side, ChainSource source, float number) {
    numbers_new_[1 + 2 * side] = static_cast<double>(source);
    numbers_new_[2 + 2 * side] = number;
    return true;
  }

  bool take(const c10::TensorImpl& tensor) {
    std::optional<KernelTensor> read = loop_tensor(tensor);
    if (!read) return false;
    has_float_ |= read->element == KernelElement::Float32;
    // The kernel looks at the others' shapes: none may be larger.
    if (count_ == 0 && (largest_ == nullptr || is_larger(tensor, *largest_))) largest_ = &tensor;
    given_[++tensors_new_] = *read;
    return true;
  }

  static bool is_larger(const c10::TensorImpl& one, const c10::TensorImpl& other) {
    return one.numel() != other.numel() ? one.numel() > other.numel() : one.dim() > other.dim();
  }

  std::array<KernelTensor, 1 + SIDES * STEPS_MAX> given_;
  std::array<double, 2 + NUMBERS * STEPS_MAX> numbers_{};
  size_t count_ = 0;
  size_t tensors_ = 0;
  // The count of tensors with those of the step that is being pushed, and the step's numbers.
  size_t tensors_new_ = 0;
  double* numbers_new_ = nullptr;
  const c10::TensorImpl* largest_ = nullptr;
  bool has_float_ = false;
  std::optional<Operand> over_;
};

bool is_comparison(LoopOperator loop) { return has(loop, STEP) && has(loop, BOOLS); }

bool is_of(const Operand& operand, at::ScalarType dtype) {
  return operand.kind == Kind::Tensor &&
         c10::typeMetaToScalarType(impl_of(operand)->dtype()) == dtype;
}

bool is_number(const Operand& operand) {
  return operand.kind == Kind::Int || operand.kind == Kind::Float;
}

// The step or two that tell of each number whether it is one.
bool push_class(Chain& chain, LoopOperator loop, const Operand& operand) {
  if (loop == LoopOperator::IsNan) {
    chain.begin(LoopOperator::Ne);
    if (!chain.given(0, operand) || !chain.given(1, operand)) return false;
    chain.end();
    return true;
  }
  chain.begin(LoopOperator::Abs);
  if (!chain.given(0, operand)) return false;
  chain.end();
  chain.begin(loop == LoopOperator::IsInf ? LoopOperator::Eq : LoopOperator::Lt);
  chain.result(0);
  chain.number(1, std::numeric_limits<float>::infinity());
  chain.end();
  return true;
}

// The steps of an operator that ATen has no vectors for; how many.
size_t push_long(Chain& chain, const Call& call, const Operand* operands) {
  const auto operand = [&](size_t place) -> const Operand& {
    return operands[call.arguments[place].index];
  };
  switch (call.loop) {
    case LoopOperator::Where:
    case LoopOperator::MaskedFill:
      return chain.push(call, operands, 0) ? 1 : 0;
    case LoopOperator::IsNan:
    case LoopOperator::IsInf:
    case LoopOperator::IsFinite: {
      if (!is_of(operand(0), at::kFloat) || !push_class(chain, call.loop, operand(0))) return 0;
      return call.loop == LoopOperator::IsNan ? 1 : 2;
    }
    case LoopOperator::ToFloat:
      if (!is_of(operand(0), at::kBool) && !is_of(operand(0), at::kLong) &&
          !is_of(operand(0), at::kInt))
        return 0;
      chain.begin(LoopOperator::Copy);
      if (!chain.given(0, operand(0))) return 0;
      chain.end();
      return 1;
    case LoopOperator::Add:
    case LoopOperator::Sub:
    case LoopOperator::Mul:
    case LoopOperator::Div: {
      // ATen has vectors for float32 alone; it casts a mask one element after the other.
      bool is_masked = (is_of(operand(0), at::kFloat) && is_of(operand(1), at::kBool)) ||
                       (is_of(operand(0), at::kBool) && is_of(operand(1), at::kFloat));
      return is_masked && chain.push(call, operands, 0) ? 1 : 0;
    }
    default:
      break;
  }
  if (!is_comparison(call.loop) || call.is_over) return 0;
  chain.begin(call.loop);
  for (size_t side = 0; side < 2; ++side) {
    const Operand& one = operand(side);
    if ((!is_of(one, at::kFloat) && !is_number(one)) || !chain.given(side, one)) return 0;
  }
  chain.end();
  return 1;
}

// An operand of a comparison of integers: a tensor in row-major order, or a number of its dtype.
struct Compared {
  const c10::TensorImpl* tensor = nullptr;
  KernelTensor given{nullptr, nullptr, nullptr, 0};
  int32_t narrow = 0;
  int64_t wide = 0;
};

bool take_tensor(Compared& side, const Operand& operand) {
  if (operand.kind != Kind::Tensor) return false;
  const c10::TensorImpl& tensor = *impl_of(operand);
  side.tensor = &tensor;
  side.given = kernel_tensor(tensor);
  bool is_integer =
      side.given.element == KernelElement::Int32 || side.given.element == KernelElement::Int64;
  return is_integer && tensor.is_contiguous();
}

// A number that the dtype does not have is for ATen, and so is one that is no integer.
bool take_number(Compared& side, const Operand& operand, KernelElement element) {
  if (operand.kind != Kind::Int) return false;
  side.wide = std::bit_cast<int64_t>(operand.bits);
  side.narrow = static_cast<int32_t>(side.wide);
  if (element == KernelElement::Int32 && side.narrow != side.wide) return false;
  void* data = element == KernelElement::Int32 ? static_cast<void*>(&side.narrow) : &side.wide;
  side.given = {data, nullptr, nullptr, 0, element};
  return true;
}

// Integers of one dtype with as many, or with one.
at::Tensor compared(LoopOperator code, const Operand& lhs, const Operand& rhs) {
  Compared left, right;
  if (!take_tensor(left, lhs)) return {};
  if (!take_number(right, rhs, left.given.element)) {
    if (!take_tensor(right, rhs) || right.given.element != left.given.element) return {};
    bool is_one = right.tensor->numel() == 1 && right.tensor->dim() <= left.tensor->dim();
    if (!is_one && right.tensor->sizes() != left.tensor->sizes()) return {};
  }
  at::Tensor out = at::empty(left.tensor->sizes(), at::TensorOptions().dtype(at::kBool));
  call(loops.comparison, {kernel_tensor(*out.unsafeGetTensorImpl()), left.given, right.given},
       {static_cast<double>(code)}, threads_for(out.numel()));
  return out;
}

// Runs a call that chains, whose numbers are float32, do not take.
at::Tensor run_alone(const Call& call, const Operand* operands) {
  if (call.loop == LoopOperator::Where || call.loop == LoopOperator::MaskedFill)
    return chosen(call, operands);
  if (!is_comparison(call.loop) || call.is_over) return {};
  return compared(call.loop, operands[call.arguments[0].index], operands[call.arguments[1].index]);
}

bool is_long(const Call& call, const Operand* operands) {
  for (const Argument& argument : call.arguments) {
    if (is_given(argument) && operands[argument.index].kind == Kind::Tensor &&
        impl_of(operands[argument.index])->numel() >= MANY_MIN)
      return true;
  }
  return false;
}

}  // namespace

bool run_long(const Call& call, const Operand* operands, c10::IValue& result) {
  bool may_be =
      call.loop != LoopOperator::None && loops.chain != nullptr && is_long(call, operands);
  if (!may_be) return false;
  at::Tensor alone = run_alone(call, operands);
  if (alone.defined()) {
    result = std::move(alone);
    return true;
  }
  Chain chain;
  size_t steps = push_long(chain, call, operands);
  if (steps == 0) return false;
  at::Tensor out;
  if (chain.run(out, steps, has(call.loop, BOOLS) ? at::kBool : at::kFloat) != steps) return false;
  result = std::move(out);
  return true;
}

at::Tensor run_joined(const JoinedStep* steps, size_t count, size_t& joined) {
  const Call* first = count < 2 ? nullptr : only_call(*steps[0].program);
  if (first == nullptr) return {};
  if (first->kernel.is_product && first->kernel.entry != nullptr) {
    joined = 1;
    return joined_product(steps);
  }
  if (loops.chain == nullptr) return {};
  Chain chain;
  for (size_t step = 0; step < count; ++step) {
    const Call* call = only_call(*steps[step].program);
    if (call == nullptr || !chain.push(*call, steps[step].operands, steps[step].from)) break;
  }
  at::Tensor out;
  size_t ran = chain.run(out, 2);
  if (ran < 2) return {};
  joined = ran - 1;  // of those that follow
  return out;
}

}  // namespace gt
