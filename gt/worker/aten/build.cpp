// Builds programs, call by call, for gt/worker/aten/binding.py: arguments are pushed, then the
// call that takes them. Nothing is executed here.
#include <c10/util/Exception.h>
#include <torch/headeronly/version.h>

#include "kernels.h"
#include "program.h"

using gt::Argument;
using gt::Program;
using gt::Signature;
using gt::Source;

namespace {

Program& program(void* pointer) { return *static_cast<Program*>(pointer); }

void push(void* pointer, c10::IValue constant) {
  Argument argument;
  argument.constant = std::move(constant);
  program(pointer).pending.push_back(std::move(argument));
}

// Replaces the last `count` arguments by one that holds them.
void collect(void* pointer, Source source, size_t count) {
  auto& pending = program(pointer).pending;
  TORCH_CHECK(count <= pending.size(), count, " arguments of ", pending.size());
  Argument argument;
  argument.source = source;
  auto first = pending.end() - static_cast<std::ptrdiff_t>(count);
  argument.parts.assign(std::make_move_iterator(first), std::make_move_iterator(pending.end()));
  pending.erase(first, pending.end());
  pending.push_back(std::move(argument));
}

bool is_direct(const Argument& argument) {
  return is_given(argument) || argument.source == Source::Temporary;
}

gt::Cut cut_of(std::string_view op) {
  if (op == "aten::convolution_backward") return gt::Cut::ConvolutionBackward;
  bool is_convolution = op == "aten::convolution" || op.starts_with("aten::conv1d") ||
                        op.starts_with("aten::conv2d") || op.starts_with("aten::conv3d") ||
                        op.starts_with("aten::conv_transpose");
  return is_convolution ? gt::Cut::Convolution : gt::Cut::None;
}

using Tensor = const at::Tensor&;

// True if the operator was registered with this very C++ type: then it can be called without a
// stack.
template <typename Function>
bool has_type(const c10::OperatorHandle& op) {
  try {
    op.typed<Function>();
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

Signature signature_of(const c10::OperatorHandle& op, const std::vector<Argument>& arguments) {
  const auto& schema = op.schema();
  bool is_fixed = schema.returns().size() == 1 && schema.arguments().size() == arguments.size();
  if (!is_fixed || arguments.empty()) return Signature::Boxed;
  auto is_tensor = [&](size_t place) {
    return schema.arguments()[place].type()->kind() == c10::TypeKind::TensorType &&
           is_direct(arguments[place]);
  };
  bool over = schema.is_mutable();
  if (arguments.size() == 1 && is_tensor(0)) {
    if (over)
      return has_type<at::Tensor&(at::Tensor&)>(op) ? Signature::UnaryOver : Signature::Boxed;
    return has_type<at::Tensor(Tensor)>(op) ? Signature::Unary : Signature::Boxed;
  }
  if (arguments.size() == 2 && is_tensor(0) && is_tensor(1)) {
    if (over)
      return has_type<at::Tensor&(at::Tensor&, Tensor)>(op) ? Signature::BinaryOver
                                                            : Signature::Boxed;
    return has_type<at::Tensor(Tensor, Tensor)>(op) ? Signature::Binary : Signature::Boxed;
  }
  using Alpha = const at::Scalar&;
  bool alpha = arguments.size() == 3 && is_tensor(0) && is_tensor(1) &&
               arguments[2].source == Source::Constant && arguments[2].constant.isScalar();
  if (!alpha) return Signature::Boxed;
  if (over) {
    return has_type<at::Tensor&(at::Tensor&, Tensor, Alpha)>(op) ? Signature::BinaryAlphaOver
                                                                 : Signature::Boxed;
  }
  return has_type<at::Tensor(Tensor, Tensor, Alpha)>(op) ? Signature::BinaryAlpha
                                                         : Signature::Boxed;
}

// Runs `work`; returns 0, or -1 with the error's text kept.
template <typename Work>
int guarded(Work work) noexcept {
  try {
    work();
    return 0;
  } catch (const c10::Error& error) {
    gt::error_text() = error.what_without_backtrace();
  } catch (const std::exception& error) {
    gt::error_text() = error.what();
  }
  return -1;
}

}  // namespace

extern "C" {

// Version of the torch that this was compiled against; asked before anything else.
const char* gt_torch_version() { return TORCH_VERSION; }

const char* gt_error_text() { return gt::error_text().c_str(); }

void* gt_program_new() { return new Program; }

void gt_program_free(void* pointer) { delete static_cast<Program*>(pointer); }

void gt_push_none(void* pointer) { push(pointer, c10::IValue()); }

void gt_push_bool(void* pointer, int value) { push(pointer, value != 0); }

void gt_push_int(void* pointer, int64_t value) { push(pointer, value); }

void gt_push_float(void* pointer, double value) { push(pointer, value); }

void gt_push_string(void* pointer, const char* value) { push(pointer, std::string(value)); }

void gt_push_ints(void* pointer, const int64_t* values, size_t count) {
  std::vector<int64_t> integers(values, values + count);
  push(pointer, c10::IValue(integers));
  program(pointer).pending.back().integers = std::move(integers);
}

void gt_push_bools(void* pointer, const int64_t* values, size_t count) {
  c10::List<bool> list;
  for (size_t i = 0; i < count; ++i) list.push_back(values[i] != 0);
  push(pointer, std::move(list));
}

void gt_push_floats(void* pointer, const double* values, size_t count) {
  push(pointer, c10::IValue(std::vector<double>(values, values + count)));
}

// Pushes the last `count` sizes of an operand; all of them if `count` is negative.
void gt_push_sizes(void* pointer, size_t index, int64_t count) {
  Argument argument;
  argument.source = Source::SizesOf;
  argument.index = index;
  argument.constant = count;
  program(pointer).pending.push_back(std::move(argument));
}

// Pushes the dtype of a tensor; with `is_device` its device. The caller keeps the handle.
void gt_push_option_of(void* pointer, void* impl, int is_device) {
  auto* tensor = static_cast<c10::TensorImpl*>(impl);
  if (is_device != 0) {
    push(pointer, tensor->device());
  } else {
    push(pointer, static_cast<int64_t>(c10::typeMetaToScalarType(tensor->dtype())));
  }
}

void gt_push_operand(void* pointer, uint32_t source, size_t index) {
  Argument argument;
  argument.source = static_cast<Source>(source);
  argument.index = index;
  program(pointer).pending.push_back(std::move(argument));
}

int gt_push_collected(void* pointer, uint32_t source, size_t count) {
  return guarded([&] { collect(pointer, static_cast<Source>(source), count); });
}

void gt_guard(void* pointer, uint32_t what, size_t operand, int64_t value) {
  program(pointer).guards.push_back({static_cast<gt::Guard::What>(what), operand, value});
}

// Makes the pending arguments those of a call, whose results are the next temporaries. Returns the
// number of results, or -1.
int gt_call(void* pointer, const char* name, const char* overload) {
  Program& made = program(pointer);
  int status = guarded([&] {
    gt::Call call;
    call.op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
    const auto& schema = call.op->schema();
    TORCH_CHECK(schema.arguments().size() == made.pending.size(), name, ".", overload, " takes ",
                schema.arguments().size(), " arguments, not ", made.pending.size());
    call.arguments = std::move(made.pending);
    call.signature = signature_of(*call.op, call.arguments);
    call.loop = gt::loop_of(*call.op, call.arguments);
    if (*overload == '\0') call.cut = cut_of(name);
    call.kernel = std::move(made.pending_kernel);
    call.is_over = schema.is_mutable();
    call.results = schema.returns().size();
    made.temporaries += call.results;
    made.calls.push_back(std::move(call));
  });
  made.pending.clear();
  made.pending_kernel = {};
  return status == 0 ? static_cast<int>(made.calls.back().results) : -1;
}

// Makes the pending arguments those of a kernel before the next call, whose results it gives if it
// takes them. Returns the number of the kernel's results; -1 if there is no such kernel.
int gt_kernel(void* pointer, const char* name) {
  Program& made = program(pointer);
  int results = -1;
  gt::KernelEntry entry =
      gt::kernel_settings.find == nullptr ? nullptr : gt::kernel_settings.find(name, &results);
  std::string_view product = name;
  bool is_product = product == "matmul" || product == "linear";
  made.pending_kernel = {entry, std::move(made.pending), is_product};
  made.pending.clear();
  return results;
}

// Makes the pending kernel a call by itself.
void gt_kernel_alone(void* pointer, size_t results) {
  Program& made = program(pointer);
  gt::Call call;
  call.kernel = std::move(made.pending_kernel);
  call.results = results;
  made.pending_kernel = {};
  made.temporaries += results;
  made.calls.push_back(std::move(call));
}

// Adds a call of a builtin, for an operation without an ATen operator, with one result.
void gt_builtin(void* pointer, uint32_t builtin) {
  Program& made = program(pointer);
  gt::Call call;
  call.builtin = static_cast<gt::Builtin>(builtin);
  call.arguments = std::move(made.pending);
  call.results = 1;
  made.pending.clear();
  made.temporaries += 1;
  made.calls.push_back(std::move(call));
}

// Makes the pending arguments the program's results.
void gt_results(void* pointer) {
  program(pointer).results = std::move(program(pointer).pending);
  program(pointer).pending.clear();
}

// States that the next result, of a program with so many operands, is like this tensor. The caller
// keeps the handle.
void gt_state_result(void* pointer, void* impl, size_t operands) {
  auto* like = static_cast<c10::TensorImpl*>(impl);
  program(pointer).operands = operands;
  program(pointer).stated.push_back(
      {c10::typeMetaToScalarType(like->dtype()), like->sizes().vec()});
}

// The type of an operator's argument, as its schema writes it; empty if there is no such argument.
const char* gt_argument_type(const char* name, const char* overload, size_t place) {
  thread_local std::string text;
  text.clear();
  auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  if (op && place < op->schema().arguments().size())
    text = op->schema().arguments()[place].type()->str();
  return text.c_str();
}
}
