// Runs programs: operands in, results out, and nothing of Python in between. Called by the worker's
// loop, by one thread at a time; it needs no interpreter.
#include <ATen/ScalarOps.h>
#include <ATen/Tensor.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>

#include <bit>
#include <deque>

#include "program.h"

using gt::Argument;
using gt::Builtin;
using gt::Call;
using gt::Kind;
using gt::Operand;
using gt::Program;
using gt::Signature;
using gt::Source;

namespace gt {

std::string& error_text() {
  thread_local std::string text;
  return text;
}

}  // namespace gt

namespace {

using TensorPointer = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

constexpr int FELL_THROUGH = -1;
constexpr int FAILED = -2;
// Models have a few dozen shapes of parameters.
constexpr size_t PLACEHOLDERS_MAX = 256;

// A tensor that somebody else owns: no count is touched.
class Borrowed {
 public:
  explicit Borrowed(const Operand& operand)
      : Borrowed(std::bit_cast<c10::TensorImpl*>(operand.bits)) {}
  explicit Borrowed(c10::TensorImpl* impl) : tensor_(TensorPointer::reclaim(impl)) {}
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() { tensor_.unsafeReleaseTensorImpl(); }
  at::Tensor& operator*() { return tensor_; }

 private:
  at::Tensor tensor_;
};

// What one run has: operands, and results of the calls so far.
struct Frame {
  const Operand* operands;
  std::vector<c10::IValue>& temporaries;
};

c10::IValue number(const Operand& operand) {
  switch (operand.kind) {
    case Kind::Bool:
      return operand.bits != 0;
    case Kind::Int:
      return std::bit_cast<int64_t>(operand.bits);
    case Kind::Float:
      return std::bit_cast<double>(operand.bits);
    case Kind::Absent:
    case Kind::Tensor:
      break;
  }
  return {};
}

at::Tensor wrapped(const Operand& operand) {
  return at::native::wrapped_scalar_tensor(number(operand).toScalar());
}

c10::IValue value(const Argument& argument, const Frame& frame);

at::Tensor tensor(const Argument& argument, const Frame& frame) {
  const Operand& operand = frame.operands[argument.index];
  switch (argument.source) {
    case Source::Operand:
      return *Borrowed(operand);
    case Source::Wrapped:
      return operand.kind == Kind::Tensor ? *Borrowed(operand) : wrapped(operand);
    case Source::Temporary:
      return frame.temporaries[argument.index].toTensor();
    case Source::Constant:
    case Source::List:
    case Source::OptionalList:
    case Source::DtypeOf:
    case Source::SizesOf:
      break;
  }
  return {};
}

// The last `count` sizes of an operand; all where that is negative.
std::vector<int64_t> sizes(const Operand& operand, int64_t count) {
  Borrowed tensor(operand);
  at::IntArrayRef all = (*tensor).sizes();
  TORCH_CHECK(count <= (*tensor).dim(), count, " sizes of ", all);
  return (count < 0 ? all : all.slice(all.size() - static_cast<size_t>(count))).vec();
}

c10::IValue value(const Argument& argument, const Frame& frame) {
  switch (argument.source) {
    case Source::Constant:
      return argument.constant;
    case Source::Operand:
      if (frame.operands[argument.index].kind != Kind::Tensor)
        return number(frame.operands[argument.index]);
      return tensor(argument, frame);
    case Source::Wrapped:
      return tensor(argument, frame);
    case Source::Temporary:
      return frame.temporaries[argument.index];
    case Source::DtypeOf:
      return static_cast<int64_t>(tensor(argument.parts[0], frame).scalar_type());
    case Source::SizesOf:
      return sizes(frame.operands[argument.index], argument.constant.toInt());
    case Source::List: {
      c10::List<at::Tensor> list;
      list.reserve(argument.parts.size());
      for (const Argument& part : argument.parts) list.push_back(tensor(part, frame));
      return list;
    }
    case Source::OptionalList: {
      c10::List<std::optional<at::Tensor>> list;
      for (const Argument& part : argument.parts) {
        c10::IValue one = value(part, frame);
        list.push_back(one.isNone() ? std::nullopt : std::optional<at::Tensor>(one.toTensor()));
      }
      return list;
    }
  }
  return {};
}

at::Tensor placeholder(const at::Tensor& like) {
  // No element overlaps another, so it could be written over.
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

at::Tensor built_in(Builtin builtin, const at::Tensor& operand) {
  return builtin == Builtin::Placeholder ? placeholder(operand) : operand.contiguous();
}

// An argument as a tensor without counting, where it is one that lives elsewhere.
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

// The fast ways; false: the call needs the stack.
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

// A kernel of GT's own where one takes the call.
bool execute_own(const Call& call, Frame& frame) {
  if (call.own == gt::Own::None || gt::is_small_product(call, frame.operands)) return false;
  thread_local std::vector<c10::IValue> given;
  std::vector<c10::IValue> results;
  given.clear();
  for (const Argument& argument : call.arguments) given.push_back(value(argument, frame));
  bool is_cut = call.own == gt::Own::Convolution || call.own == gt::Own::ConvolutionBackward;
  bool is_done = is_cut ? gt::run_cut(*call.op, call.own, given, results)
                        : gt::run_own(call.own, given, results);
  given.clear();
  for (c10::IValue& one : results) frame.temporaries.push_back(std::move(one));
  return is_done;
}

// False where nobody here runs the call.
bool execute(const Call& call, Frame& frame) {
  if (call.builtin != Builtin::None) {
    frame.temporaries.emplace_back(built_in(call.builtin, tensor(call.arguments[0], frame)));
    return true;
  }
  if (execute_own(call, frame)) return true;
  if (!call.op) return false;
  c10::IValue result;
  if (gt::run_small(call, frame.operands, result) || gt::run_long(call, frame.operands, result) ||
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

// Whether a call takes lists of tensors: of the parameters of an update, for one.
bool takes_lists(const Call& call) {
  for (const Argument& argument : call.arguments) {
    if (argument.source == Source::List) return true;
  }
  return false;
}

// Whether a call computes the same for all members of a group: it is given numbers alone.
bool is_shared(const Call& call, const Frame& frame) {
  for (const Argument& argument : call.arguments) {
    bool is_number =
        argument.source == Source::Operand && frame.operands[argument.index].kind != Kind::Tensor;
    if (!is_number && argument.source != Source::Constant) return false;
  }
  return true;
}

// One call for all members: lists of theirs after one another, the rest as the first one has it.
void execute_lists(const Call& call, std::vector<Frame>& frames) {
  TORCH_CHECK(call.results == 0, "a list's results are not told apart");
  torch::jit::Stack stack;
  for (const Argument& argument : call.arguments) {
    if (argument.source != Source::List) {
      stack.push_back(value(argument, frames.front()));
      continue;
    }
    c10::List<at::Tensor> list;
    list.reserve(argument.parts.size() * frames.size());
    for (const Frame& frame : frames) {
      for (const Argument& part : argument.parts) list.push_back(tensor(part, frame));
    }
    stack.push_back(std::move(list));
  }
  call.op->callBoxed(stack);
}

bool holds(const gt::Guard& guard, const Operand* operands) {
  Borrowed operand(operands[guard.operand]);
  switch (guard.what) {
    case gt::Guard::What::Rank:
      return (*operand).dim() == guard.value;
    case gt::Guard::What::NotEmpty:
      return (*operand).numel() != 0;
    case gt::Guard::What::Real:
      return !(*operand).is_complex();
  }
  return false;
}

// Whether a tensor's memory is that of an operand or of one of the results so far.
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

// The results of a generic instruction: in memory of their own, as some operators give an operand
// back, with bytes as they stand. False where they are not what the instruction states: the same
// call in Python says so.
bool check_results(const Program& program, const Frame& frame, std::vector<at::Tensor>& checked) {
  for (size_t i = 0; i < program.results.size(); ++i) {
    at::Tensor made = tensor(program.results[i], frame);
    if (!made.defined()) return false;
    made = made.resolve_conj().resolve_neg();
    if (is_shared_memory(made, frame.operands, program.operands, checked)) made = made.clone();
    const gt::Stated& stated = program.stated[i];
    if (made.scalar_type() != stated.dtype || made.sizes() != stated.sizes) return false;
    checked.push_back(std::move(made));
  }
  return true;
}

int run(const Program& program, const Operand* operands, void** results) {
  for (const gt::Guard& guard : program.guards) {
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

// A program for several members, whose operands follow one another, `width` of each: calls of lists
// once for all.
int run_group(const Program& program, const Operand* operands, size_t width, size_t members,
              void** results) {
  if (!program.guards.empty()) return FELL_THROUGH;
  std::vector<std::vector<c10::IValue>> temporaries(members);
  std::vector<Frame> frames;
  frames.reserve(members);
  for (size_t i = 0; i < members; ++i) frames.push_back({operands + i * width, temporaries[i]});
  for (const Call& call : program.calls) {
    if (takes_lists(call)) {
      execute_lists(call, frames);
    } else if (is_shared(call, frames.front())) {
      if (!execute(call, frames.front())) return FELL_THROUGH;
      const std::vector<c10::IValue>& made = temporaries.front();
      for (size_t i = 1; i < members; ++i)
        temporaries[i].insert(temporaries[i].end(), made.end() - call.results, made.end());
    } else {
      for (Frame& frame : frames) {
        if (!execute(call, frame)) return FELL_THROUGH;
      }
    }
  }
  for (const Frame& frame : frames) {
    for (const Argument& result : program.results)
      *results++ = tensor(result, frame).unsafeReleaseTensorImpl();
  }
  return static_cast<int>(program.results.size());
}

// Where torch's warnings go: the worker's log.
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

// Runs `work`, which returns how many results there are; FAILED, with the text kept, where it
// throws.
template <typename Work>
int told(Work work) {
  c10::WarningUtils::WarningHandlerGuard to_log(&warnings());
  try {
    return work();
  } catch (const c10::Error& error) {
    gt::error_text() = error.what_without_backtrace();
  } catch (const std::exception& error) {
    gt::error_text() = error.what();
  }
  return FAILED;
}

}  // namespace

namespace gt {

std::vector<c10::IValue> values_of(const Call& call, const Operand* operands) {
  std::vector<c10::IValue> temporaries;
  Frame frame{operands, temporaries};
  std::vector<c10::IValue> values;
  for (const Argument& argument : call.arguments) values.push_back(value(argument, frame));
  return values;
}

}  // namespace gt

extern "C" {

// What a tensor's memory is. `sizes` and `strides` live as long as it does.
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

// Runs a program. The results are the caller's, as many as returned; -1: a guard says that it is
// for others, -2: it failed, and nobody has been told why but gt_error_text.
int gt_run(const void* program, const Operand* operands, void** results) {
  return told([&] { return run(*static_cast<const Program*>(program), operands, results); });
}

// Runs the first of these steps and as many of those that follow as go together with it, in one
// pass: how many of those that follow, and the result of the last one; -1 where none does.
int gt_run_joined(const gt::JoinedStep* steps, size_t count, void** result) {
  return told([&] {
    size_t joined = 0;
    at::Tensor made = gt::run_joined(steps, count, joined);
    if (!made.defined()) return FELL_THROUGH;
    *result = made.unsafeReleaseTensorImpl();
    return static_cast<int>(joined);
  });
}

// Runs a program for several members, whose operands are of the same kinds; as many results of each
// as returned, those of one after another.
int gt_run_group(const void* program, const Operand* operands, size_t width, size_t members,
                 void** results) {
  const Program& group = *static_cast<const Program*>(program);
  return told([&] { return run_group(group, operands, width, members, results); });
}

void gt_set_warnings(void (*show)(const char*)) { warnings().show = show; }

void gt_release(void* impl) { TensorPointer::reclaim(static_cast<c10::TensorImpl*>(impl)); }

// The handle of a Python tensor, the caller's; null where it is none. The interpreter's lock is
// held.
void* gt_from_python(void* object) {
  AtenTensorHandle handle = nullptr;
  if (torch_tensor_from_pyobject(object, &handle) != 0) return nullptr;
  auto* owned = reinterpret_cast<at::Tensor*>(handle);
  void* impl = owned->unsafeReleaseTensorImpl();
  delete owned;
  return impl;
}

// The Python tensor of a handle, a new reference; null with an error. The interpreter's lock is
// held.
void* gt_to_python(void* impl) {
  Borrowed tensor(static_cast<c10::TensorImpl*>(impl));
  void* object = nullptr;
  auto* handle = reinterpret_cast<AtenTensorHandle>(&*tensor);
  return torch_tensor_to_pyobject(handle, nullptr, &object) == 0 ? object : nullptr;
}

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

// A contiguous copy, the caller's; null with an error.
void* gt_copy(void* impl) {
  Borrowed tensor(static_cast<c10::TensorImpl*>(impl));
  try {
    return at::clone(*tensor, c10::MemoryFormat::Contiguous).unsafeReleaseTensorImpl();
  } catch (const std::exception&) {
    return nullptr;
  }
}
}
