// Runs programs: operands in, results out, and no Python in between. The worker's loop calls this
// from one thread at a time, without the interpreter's lock.
#include <ATen/Tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <deque>

#include "kernels.h"

namespace gt {

std::string& error_text() {
  thread_local std::string text;
  return text;
}

namespace {

// Limit of cached placeholders: models have a few dozen shapes of parameters.
constexpr size_t PLACEHOLDERS_MAX = 256;

at::Tensor placeholder(const at::Tensor& like) {
  // No two elements overlap here, so kernels could write to it: it is not shared.
  if (like.numel() <= 1) return at::zeros_like(like);
  thread_local std::deque<std::pair<at::Tensor, at::Tensor>> kept;
  for (const auto& [shape, zero] : kept) {
    bool same = shape.scalar_type() == like.scalar_type() && shape.device() == like.device();
    if (same && zero.sizes() == like.sizes()) return zero;
  }
  at::Tensor zero = at::zeros({}, like.options());
  if (kept.size() == PLACEHOLDERS_MAX) kept.pop_front();
  kept.emplace_back(zero, zero.expand(like.sizes()));
  return kept.back().second;
}

at::Tensor built_in(const Call& call, const Frame& frame) {
  at::Tensor operand = tensor(call.arguments[0], frame);
  if (call.builtin == Builtin::Placeholder) return placeholder(operand);
  if (call.builtin == Builtin::Contiguous) return row_major(operand);
  return reshape(operand, call.arguments[1].integers);
}

// An argument as a tensor, without touching the reference count of one that lives elsewhere.
class Direct {
 public:
  Direct(const Argument& argument, const Frame& frame) {
    const Operand& operand = frame.operands[argument.index];
    bool is_borrowed = argument.source != Source::Temporary && operand.kind == Kind::Tensor;
    if (is_borrowed) {
      borrowed_.emplace(operand);
    } else {
      own_ = tensor(argument, frame);
    }
  }
  at::Tensor& operator*() { return borrowed_ ? **borrowed_ : own_; }

 private:
  std::optional<Borrowed> borrowed_;
  at::Tensor own_;
};

// Calls an operator without a stack; false if the call needs the stack.
bool call_typed(const Call& call, const Frame& frame, c10::IValue& result) {
  using Tensor = const at::Tensor&;
  using Alpha = const at::Scalar&;
  if (call.signature == Signature::Boxed) return false;
  Direct first(call.arguments[0], frame);
  if (call.signature == Signature::Unary) {
    result = call.op->typed<at::Tensor(Tensor)>().call(*first);
    return true;
  }
  if (call.signature == Signature::UnaryOver) {
    result = call.op->typed<at::Tensor&(at::Tensor&)>().call(*first);
    return true;
  }
  Direct second(call.arguments[1], frame);
  if (call.signature == Signature::Binary) {
    result = call.op->typed<at::Tensor(Tensor, Tensor)>().call(*first, *second);
  } else if (call.signature == Signature::BinaryOver) {
    result = call.op->typed<at::Tensor&(at::Tensor&, Tensor)>().call(*first, *second);
  } else if (call.signature == Signature::BinaryAlpha) {
    at::Scalar alpha = call.arguments[2].constant.toScalar();
    result = call.op->typed<at::Tensor(Tensor, Tensor, Alpha)>().call(*first, *second, alpha);
  } else {
    at::Scalar alpha = call.arguments[2].constant.toScalar();
    result = call.op->typed<at::Tensor&(at::Tensor&, Tensor, Alpha)>().call(*first, *second, alpha);
  }
  return true;
}

// Runs a part of the batch in each thread; false if the call is not cut, or that does not pay.
bool execute_cut(const Call& call, Frame& frame) {
  thread_local std::vector<c10::IValue> values;
  std::vector<c10::IValue> results;
  values.clear();
  for (const Argument& argument : call.arguments) values.push_back(value(argument, frame));
  bool is_done = run_cut(*call.op, call.cut, values, results);
  values.clear();
  for (c10::IValue& one : results) frame.temporaries.push_back(std::move(one));
  return is_done;
}

}  // namespace

bool execute(const Call& call, Frame& frame) {
  if (call.builtin != Builtin::None) {
    frame.temporaries.emplace_back(built_in(call, frame));
    return true;
  }
  if (call.kernel.entry != nullptr && execute_kernel(call, frame)) return true;
  if (!call.op) return false;
  if (call.cut != Cut::None && execute_cut(call, frame)) return true;
  c10::IValue result;
  if (run_small(call, frame.operands, result) || run_long(call, frame.operands, result) ||
      call_typed(call, frame, result)) {
    frame.temporaries.push_back(std::move(result));
    return true;
  }
  thread_local torch::jit::Stack stack;
  stack.clear();
  for (const Argument& argument : call.arguments) stack.push_back(value(argument, frame));
  call.op->callBoxed(stack);
  for (c10::IValue& one : stack) frame.temporaries.push_back(std::move(one));
  stack.clear();
  return true;
}

namespace {

bool holds(const Guard& guard, const Operand* operands) {
  Borrowed operand(operands[guard.operand]);
  switch (guard.what) {
    case Guard::What::Rank:
      return (*operand).dim() == guard.value;
    case Guard::What::NotEmpty:
      return (*operand).numel() != 0;
    case Guard::What::Real:
      return !(*operand).is_complex();
  }
  return false;
}

// True if a tensor's memory is that of an operand or of one of the results so far.
bool is_shared_memory(const at::Tensor& made, const Operand* operands, size_t count,
                      const std::vector<at::Tensor>& results) {
  const void* memory = made.storage().data();
  if (memory == nullptr) return false;
  for (size_t i = 0; i < count; ++i) {
    if (operands[i].kind != Kind::Tensor) continue;
    Borrowed operand(operands[i]);
    if ((*operand).storage().data() == memory) return true;
  }
  for (const at::Tensor& result : results)
    if (result.storage().data() == memory) return true;
  return false;
}

// Checks the results of a generic instruction, and gives them memory of their own, since some
// operators return an operand. False if they are not those that the instruction states: the same
// call in Python raises the error.
bool check_results(const Program& program, const Frame& frame, std::vector<at::Tensor>& checked) {
  for (size_t i = 0; i < program.results.size(); ++i) {
    at::Tensor made = tensor(program.results[i], frame);
    if (!made.defined()) return false;
    made = made.resolve_conj().resolve_neg();
    if (is_shared_memory(made, frame.operands, program.operands, checked)) made = made.clone();
    const Stated& stated = program.stated[i];
    if (made.scalar_type() != stated.dtype || made.sizes() != stated.sizes) return false;
    checked.push_back(std::move(made));
  }
  return true;
}

int run(const Program& program, const Operand* operands, void** results) {
  for (const Guard& guard : program.guards) {
    if (!holds(guard, operands)) return FELL_THROUGH;
  }
  thread_local std::vector<c10::IValue> temporaries;
  temporaries.clear();
  Frame frame{operands, temporaries};
  for (const Call& call : program.calls) {
    if (!execute(call, frame)) return FELL_THROUGH;
  }
  if (!program.stated.empty()) {
    std::vector<at::Tensor> checked;
    bool is_as_stated = check_results(program, frame, checked);
    temporaries.clear();
    if (!is_as_stated) return FELL_THROUGH;
    for (at::Tensor& made : checked) *results++ = made.unsafeReleaseTensorImpl();
    return static_cast<int>(program.results.size());
  }
  for (size_t i = 0; i < program.results.size(); ++i) {
    results[i] = tensor(program.results[i], frame).unsafeReleaseTensorImpl();
  }
  temporaries.clear();
  return static_cast<int>(program.results.size());
}

// Sends torch's warnings to the worker's log.
class Warnings : public c10::WarningHandler {
 public:
  void (*show)(const char*) = nullptr;
  void process(const c10::Warning& warning) override {
    if (show != nullptr) show(warning.msg().c_str());
  }
};

Warnings& warnings() {
  static Warnings handler;
  return handler;
}

// Runs `work`, which returns the number of results; FAILED, with the text kept, if it throws.
template <typename Work>
int told(Work work) {
  c10::WarningUtils::WarningHandlerGuard to_log(&warnings());
  try {
    return work();
  } catch (const c10::Error& error) {
    error_text() = error.what_without_backtrace();
  } catch (const std::exception& error) {
    error_text() = error.what();
  }
  return FAILED;
}

}  // namespace

}  // namespace gt

using gt::Borrowed;
using gt::Operand;
using gt::Program;
using gt::told;

extern "C" {

// Description of a tensor's memory. `sizes` and `strides` live as long as the tensor does.
struct GtDescription {
  void* data;
  uint64_t bytes;
  uint64_t storage_bytes;
  uint64_t dims;
  const int64_t* sizes;
  const int64_t* strides;
  uint64_t is_contiguous;
  uint64_t is_on_host;
};

// Runs a program. Returns the number of results, which the caller owns; -1 if a guard refuses the
// operands; -2 if it failed, with the reason only in gt_error_text.
int gt_run(const void* program, const Operand* operands, void** results) {
  return told([&] { return gt::run(*static_cast<const Program*>(program), operands, results); });
}

// Runs the first step and as many behind it as can join it, in one pass. Returns the number of
// steps behind the first, and in `result` the last one's result; -1 if none runs.
int gt_run_joined(const gt::JoinedStep* steps, size_t count, void** result) {
  return told([&] {
    size_t joined = 0;
    at::Tensor made = gt::run_joined(steps, count, joined);
    if (!made.defined()) return gt::FELL_THROUGH;
    *result = made.unsafeReleaseTensorImpl();
    return static_cast<int>(joined);
  });
}

// Runs a program for several members, whose operands have the same kinds. Returns the number of
// results of each member; `results` holds those of one member after the other's.
int gt_run_group(const void* program, const Operand* operands, size_t width, size_t members,
                 void** results) {
  const Program& group = *static_cast<const Program*>(program);
  return told([&] { return gt::run_group(group, operands, width, members, results); });
}

void gt_set_warnings(void (*show)(const char*)) { gt::warnings().show = show; }

void gt_release(void* impl) { gt::TensorPointer::reclaim(static_cast<c10::TensorImpl*>(impl)); }

void gt_describe(void* impl, GtDescription* description) {
  Borrowed borrowed(static_cast<c10::TensorImpl*>(impl));
  at::Tensor& tensor = *borrowed;
  *description = {
      tensor.const_data_ptr() == nullptr ? nullptr : const_cast<void*>(tensor.const_data_ptr()),
      tensor.nbytes(),
      tensor.storage().nbytes(),
      static_cast<uint64_t>(tensor.dim()),
      tensor.sizes().data(),
      tensor.strides().data(),
      tensor.is_contiguous() ? 1U : 0U,
      tensor.is_cpu() ? 1U : 0U};
}

// A contiguous copy, owned by the caller; null with an error.
void* gt_copy(void* impl) {
  Borrowed tensor(static_cast<c10::TensorImpl*>(impl));
  try {
    return gt::row_major_copy(*tensor).unsafeReleaseTensorImpl();
  } catch (const std::exception&) {
    return nullptr;
  }
}
}
