// Several instructions in one pass over memory, where no bit tells it from one after the other: a
// product with relu or its gradient behind it, and chains of elementwise operators
// (csrc/cpu/chain.h).
#include <array>
#include <bit>

#include "own.h"

namespace gt {

namespace {

// Steps of a chain at most, as csrc/cpu/chain.h has it.
constexpr size_t STEPS_MAX = 16;
// Elements times steps from which on threads are worth waking.
constexpr int64_t SHARED_WORK_MIN = 1 << 18;

// The one call of a program that is nothing else.
const Call* only_call(const Program& program) {
  bool is_one = program.calls.size() == 1 && program.guards.empty() && program.stated.empty() &&
                program.results.size() == 1;
  return is_one ? &program.calls.front() : nullptr;
}

const c10::TensorImpl* impl_of(const Operand& operand) {
  return std::bit_cast<const c10::TensorImpl*>(operand.bits);
}

at::Tensor counted(const Operand& operand) {
  using Counted = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  return at::Tensor(Counted::reclaim_copy(const_cast<c10::TensorImpl*>(impl_of(operand))));
}

bool is_result(const JoinedStep& step, size_t operand) { return step.from >> operand & 1; }

at::Tensor joined_product(const JoinedStep* steps) {
  const Call* product = only_call(*steps[0].program);
  const Call* next = only_call(*steps[1].program);
  if (next == nullptr || is_small_product(*product, steps[0].operands)) return {};
  if (next->small == Small::Relu)
    return product_with_relu(product->own, values_of(*product, steps[0].operands));
  if (next->small != Small::ReluBackward || steps[1].from != 1) return {};
  const Operand& gate = steps[1].operands[next->arguments[1].index];
  if (gate.kind != Kind::Tensor) return {};
  return gated_product(product->own, values_of(*product, steps[0].operands), counted(gate));
}

// What a step is in a chain; nothing where it is not for one.
std::optional<ChainCode> code_of(Small small) {
  switch (small) {
    case Small::Neg:
      return ChainCode::Neg;
    case Small::Abs:
      return ChainCode::Abs;
    case Small::Square:
      return ChainCode::Square;
    case Small::Reciprocal:
      return ChainCode::Reciprocal;
    case Small::Rsqrt:
      return ChainCode::Rsqrt;
    case Small::Relu:
      return ChainCode::Relu;
    case Small::Add:
      return ChainCode::Add;
    case Small::Sub:
      return ChainCode::Sub;
    case Small::Mul:
      return ChainCode::Mul;
    case Small::Div:
      return ChainCode::Div;
    case Small::ReluBackward:
      return ChainCode::ReluBackward;
    case Small::None:
    case Small::Pow:
    case Small::Eq:
    case Small::Ne:
    case Small::Lt:
    case Small::Le:
    case Small::Gt:
    case Small::Ge:
      break;
  }
  return std::nullopt;
}

// The steps of a chain as its kernel takes them.
class Chain {
 public:
  // False where the step is not for a chain, and those before it are all.
  bool push(const JoinedStep& step) {
    const Call* call = only_call(*step.program);
    if (call == nullptr || count_ == STEPS_MAX || (count_ > 0 && call->is_over)) return false;
    Small small = call->small == Small::Pow ? power_of(*call, step.operands) : call->small;
    std::optional<ChainCode> code = code_of(small);
    if (!code) return false;
    size_t sides = small >= Small::Add ? 2 : 1;
    size_t tensors = tensors_;
    double* numbers = &numbers_[1 + 5 * count_];
    *numbers++ = static_cast<double>(*code);
    for (size_t side = 0; side < sides; ++side, numbers += 2) {
      size_t place = call->arguments[side].index;
      const Operand& operand = step.operands[place];
      if (is_result(step, place)) {
        numbers[0] = static_cast<double>(ChainSource::Result);
      } else if (operand.kind == Kind::Tensor) {
        numbers[0] = static_cast<double>(ChainSource::Tensor);
        if (!take(*impl_of(operand), tensors)) return false;
      } else if (operand.kind == Kind::Int || operand.kind == Kind::Float) {
        numbers[0] = static_cast<double>(ChainSource::Number);
        numbers[1] = number(operand);
      } else {
        return false;
      }
    }
    if (count_ == 0) {
      if (largest_ == nullptr) return false;
      if (call->is_over) over_ = step.operands[call->arguments[0].index];
    }
    tensors_ = tensors;
    ++count_;
    return true;
  }

  // How many steps have run, if more than one, with `out` the result.
  size_t run(at::Tensor& out) {
    if (count_ < 2) return 0;
    out = over_ ? counted(*over_) : at::empty(largest_->sizes(), options());
    if (over_) out.unsafeGetTensorImpl()->bump_version();
    given_[0] = {out.mutable_data_ptr(), out.sizes().data(), out.strides().data(),
                 static_cast<int32_t>(out.dim())};
    numbers_[0] = static_cast<double>(count_);
    bool is_shared = out.numel() * static_cast<int64_t>(count_) >= SHARED_WORK_MIN;
    char text[ERROR_BYTES];
    int ran = kernels.chain(given_.data(), numbers_.data(), is_shared ? kernels.threads : 1, text,
                            sizeof text);
    TORCH_CHECK(ran >= 0, text);
    return ran < 2 ? 0 : static_cast<size_t>(ran);
  }

 private:
  // Rounded once to what ATen takes it for.
  static float number(const Operand& operand) {
    if (operand.kind == Kind::Float) return static_cast<float>(std::bit_cast<double>(operand.bits));
    return static_cast<float>(std::bit_cast<int64_t>(operand.bits));
  }

  bool take(const c10::TensorImpl& tensor, size_t& tensors) {
    bool fits = tensor.dtype() == caffe2::TypeMeta::Make<float>() &&
                tensor.device_type() == c10::DeviceType::CPU && tensor.layout() == c10::kStrided &&
                !tensor.key_set().has(c10::DispatchKey::Negative);
    if (!fits) return false;
    // The kernel looks at the others' shapes: none may be larger.
    if (count_ == 0 && (largest_ == nullptr || tensor.numel() > largest_->numel()))
      largest_ = &tensor;
    given_[++tensors] = {const_cast<void*>(tensor.data()), tensor.sizes().data(),
                         tensor.strides().data(), static_cast<int32_t>(tensor.dim())};
    return true;
  }

  static at::TensorOptions options() { return at::TensorOptions().dtype(at::kFloat); }

  std::array<KernelTensor, 1 + 2 * STEPS_MAX> given_;
  std::array<double, 1 + 5 * STEPS_MAX> numbers_{};
  size_t count_ = 0;
  size_t tensors_ = 0;
  const c10::TensorImpl* largest_ = nullptr;
  std::optional<Operand> over_;
};

}  // namespace

at::Tensor run_joined(const JoinedStep* steps, size_t count, size_t& joined) {
  const Call* first = count < 2 ? nullptr : only_call(*steps[0].program);
  if (first == nullptr) return {};
  if (first->own == Own::Matmul || first->own == Own::Linear) {
    joined = 1;
    return joined_product(steps);
  }
  if (kernels.chain == nullptr) return {};
  Chain chain;
  size_t taken = 0;
  while (taken < count && chain.push(steps[taken])) ++taken;
  at::Tensor out;
  joined = chain.run(out);
  if (joined == 0) return {};
  --joined;  // of those that follow
  return out;
}

}  // namespace gt
