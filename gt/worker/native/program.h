// A row of the table as calls of ATen operators whose arguments are known but for the operands.
// What runs it is in run.cpp, what makes it in build.cpp. No Python here: this folder is compiled
// against the installed torch alone.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace gt {

// What an operand is, as the worker says it (crates/python/src/worker/native/abi.rs).
enum class Kind : uint64_t { Absent = 0, Tensor = 1, Bool = 2, Int = 3, Float = 4 };

// `bits`: a TensorImpl's address, borrowed, or a number's bits.
struct Operand {
  Kind kind;
  uint64_t bits;
};

// Where an argument of a call comes from.
enum class Source : uint32_t {
  Constant,
  Operand,       // a tensor, or a number as such
  Wrapped,       // a number that promotes as PyTorch's numbers do: a 0-dim tensor that says so
  Temporary,     // a result of an earlier call
  List,          // of the arguments in `parts`
  OptionalList,  // the same, of which some may be absent
  DtypeOf,       // of the argument in `parts`
  SizesOf,       // of operand `index`: the last ones, as many as `constant` says, or all
};

struct Argument {
  Source source = Source::Constant;
  size_t index = 0;
  c10::IValue constant;
  std::vector<Argument> parts;
};

// Whether it is an operand, as a number or a tensor.
inline bool is_given(const Argument& argument) {
  return argument.source == Source::Operand || argument.source == Source::Wrapped;
}

// Signatures that are called without a stack, 50 ns faster.
enum class Signature : uint8_t {
  Boxed,
  Unary,
  Binary,
  BinaryAlpha,
  UnaryOver,
  BinaryOver,
  BinaryAlphaOver
};

// What no operator of ATen is.
enum class Builtin : uint32_t {
  None = 0,
  Contiguous = 1,  // the tensor itself where it is
  Placeholder =
      2,  // stands for a state that a step does not have: the tensor's shape over one zero
};

// Operators that IEEE 754 rounds once, or not at all: loops of our own have every bit of ATen's, of
// a few numbers in a row (small.cpp) and of several operators in one pass (joined.cpp).
enum class Small : uint8_t {
  None,
  Neg,
  Abs,
  Square,
  Reciprocal,
  Relu,
  Rsqrt,
  Add,
  Sub,
  Mul,
  Div,
  ReluBackward,
  Pow,
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  IsNan,
  IsInf,
  IsFinite,
  ToFloat,
  Where,
  MaskedFill,
};

// What kernels of GT's own run (own.h): in place of an operator of ATen's where its operands are
// for them, or an operator of GT's, as gt/worker/native/program.py counts those.
enum class Own : uint32_t {
  None = 0,
  Attention = 1,
  AttentionBackward = 2,
  LstmLayer = 3,
  LstmLayerBackward = 4,
  GruLayer = 5,
  GruLayerBackward = 6,
  RnnLayer = 7,
  RnnLayerBackward = 8,
  RmsNormBackward = 9,
  BatchNorm = 10,
  Matmul,
  Linear,
  AdamW,
  Adam,
  Convolution,
  ConvolutionBackward,
  RmsNorm,
  BatchNormBackward,
  Reshape,
  Cumsum,
  Sum,
  Sort,
  Topk,
  Argmax,
  Argmin,
  Any,
  All,
  Var,
  Std,
};

// Threads of gt._kernels that stay, and OpenMP's number of threads in the calling one.
struct BatchThreads {
  void (*run)(int64_t tasks, int threads, void (*work)(void*, int64_t), void* context);
  int most;
  void (*set)(int);
};

// From which sizes on they run, as gt/worker/own_kernels.py says.
struct OwnSizes {
  int64_t product_work_min;
  int64_t update_elements_min;
  int64_t queries_min;
};

struct Call {
  // None: the call is a builtin, or of an operator of GT's.
  std::optional<c10::OperatorHandle> op;
  Builtin builtin = Builtin::None;
  Signature signature = Signature::Boxed;
  Small small = Small::None;
  Own own = Own::None;
  bool is_over = false;
  std::vector<Argument> arguments;
  size_t results = 0;
};

// A condition on an operand that only its value can tell.
struct Guard {
  enum class What : uint32_t { Rank = 0, NotEmpty = 1, Real = 2 } what;
  size_t operand;
  int64_t value;
};

// What an instruction states of a result.
struct Stated {
  c10::ScalarType dtype;
  std::vector<int64_t> sizes;
};

struct Program {
  std::vector<Guard> guards;
  std::vector<Call> calls;
  std::vector<Argument> results;
  // Of a generic instruction, one for each result; empty of a row, whose rule is known to hold.
  std::vector<Stated> stated;
  // How many operands it is given, where that is stated too.
  size_t operands = 0;
  // While it is being made: arguments of the next call.
  std::vector<Argument> pending;
  size_t temporaries = 0;
};

// The loop that stands for an operator with these arguments, if one does.
Small small_of(const c10::OperatorHandle& op, const std::vector<Argument>& arguments);

// Of a call of Small::Pow what the power of its operands is; None where no loop of ours makes it.
Small power_of(const Call& call, const Operand* operands);

// The call's result by a loop; false: its operands are for ATen.
bool run_small(const Call& call, const Operand* operands, c10::IValue& result);

// The same of many numbers, by an operator for which ATen has no vectors; false: it is for ATen.
bool run_long(const Call& call, const Operand* operands, c10::IValue& result);

// What may run in place of an operator of ATen's.
Own own_of(std::string_view op, std::string_view overload);

// Whether it is a product that is too small for a kernel of our own, as far as its operands are
// given.
bool is_small_product(const Call& call, const Operand* operands);

// Whether ATen is to run it by its first operand alone: a reshape of what is row-major, which makes
// no copy, and a sum of other elements than bools.
bool is_for_aten(const Call& call, const Operand* operands);

// The same elements in row-major order, in memory of their own; the tensor itself where it is so.
at::Tensor row_major_copy(const at::Tensor& x);
at::Tensor row_major(const at::Tensor& x);

// The results of a kernel of GT's own; false, with nothing done, where the operands are for others.
bool run_own(Own own, const std::vector<c10::IValue>& values, std::vector<c10::IValue>& results);

// The product of these arguments, and zero where that is below zero, or where `gate` is not above
// it; undefined, with nothing done, where the operands are for others.
at::Tensor product_with_relu(Own own, const std::vector<c10::IValue>& values);
at::Tensor gated_product(Own own, const std::vector<c10::IValue>& values, const at::Tensor& gate);

// One of several instructions, of which each but the first takes the result of the one before it.
struct JoinedStep {
  const Program* program;
  const Operand* operands;
  uint64_t from;  // operands, a bit each, that are that result; they are given as tensors without
                  // an address
};

// The result of the first step and of as many as go together with it, at least one, whose number is
// `joined`; undefined, with nothing done, where none does.
at::Tensor run_joined(const JoinedStep* steps, size_t count, size_t& joined);

// The arguments of a call whose operands are given, and nothing else.
std::vector<c10::IValue> values_of(const Call& call, const Operand* operands);

// The same of an operator of ATen's that is cut over the batch.
bool run_cut(const c10::OperatorHandle& op, Own own, const std::vector<c10::IValue>& values,
             std::vector<c10::IValue>& results);

// The text of the last error of this thread.
std::string& error_text();

}  // namespace gt
