// A row of the table as calls of ATen operators with all arguments known except the operands.
// run.cpp runs it, build.cpp makes it. No Python here: this folder is compiled against the
// installed torch alone.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernel_table.h"
#include "loop_operators.h"

namespace gt {

// Kind of an operand, numbered as in crates/python/src/worker/aten/abi.rs.
enum class Kind : uint64_t { Absent = 0, Tensor = 1, Bool = 2, Int = 3, Float = 4 };

// `bits` holds a TensorImpl's address, borrowed, or a number's bits.
struct Operand {
  Kind kind;
  uint64_t bits;
};

// Source of a call's argument.
enum class Source : uint32_t {
  Constant,
  Operand,       // a tensor, or a number as such
  Wrapped,       // a number that promotes as PyTorch's numbers do: a 0-dim tensor that says so
  Temporary,     // a result of an earlier call
  List,          // a list of the arguments in `parts`
  OptionalList,  // a list of the arguments in `parts`, some of which may be absent
  DtypeOf,       // the dtype of the argument in `parts`
  SizesOf,       // the sizes of operand `index`: the last `constant` ones, or all
};

struct Argument {
  Source source = Source::Constant;
  size_t index = 0;
  c10::IValue constant;
  // Elements of a constant list of integers, in the form that kernels read.
  std::vector<int64_t> integers;
  std::vector<Argument> parts;
};

// True for an operand, as a number or a tensor.
inline bool is_given(const Argument& argument) {
  return argument.source == Source::Operand || argument.source == Source::Wrapped;
}

// Signatures of operators that are called without a stack, which is 50 ns faster.
enum class Signature : uint8_t {
  Boxed,
  Unary,
  Binary,
  BinaryAlpha,
  UnaryOver,
  BinaryOver,
  BinaryAlphaOver
};

// Operations without an operator of ATen.
enum class Builtin : uint32_t {
  None = 0,
  Contiguous = 1,  // the tensor itself if it is contiguous
  Placeholder =
      2,        // stands for a state that a step does not have: the tensor's shape over one zero
  Reshape = 3,  // a tensor and sizes; a copy in row-major order is made by tiles
};

// ATen operators that are cut over the batch, a part for each thread (batch.cpp).
enum class Cut : uint8_t { None, Convolution, ConvolutionBackward };

// gt._kernels' pool of threads, and the setter of OpenMP's number of threads in the calling thread.
struct BatchThreads {
  void (*run)(int64_t tasks, int threads, void (*work)(void*, int64_t), void* context);
  int most;
  void (*set)(int);
};

// One of GT's kernels and its arguments (kernels.h). The kernel decides which calls it takes.
struct KernelCall {
  KernelEntry entry = nullptr;
  std::vector<Argument> arguments;
  // True for a product, whose last two arguments describe the operators that follow in its pass.
  bool is_product = false;
};

// The implementations of one call in their order: GT's kernel, loops, ATen's operator.
struct Call {
  KernelCall kernel;
  // None for a builtin, or for a call that only the kernel runs.
  std::optional<c10::OperatorHandle> op;
  Builtin builtin = Builtin::None;
  Signature signature = Signature::Boxed;
  LoopOperator loop = LoopOperator::None;
  Cut cut = Cut::None;
  bool is_over = false;
  std::vector<Argument> arguments;
  size_t results = 0;
};

// A condition on an operand that depends on its value.
struct Guard {
  enum class What : uint32_t { Rank = 0, NotEmpty = 1, Real = 2 } what;
  size_t operand;
  int64_t value;
};

// Dtype and sizes that an instruction states for a result.
struct Stated {
  c10::ScalarType dtype;
  std::vector<int64_t> sizes;
};

struct Program {
  std::vector<Guard> guards;
  std::vector<Call> calls;
  std::vector<Argument> results;
  // Stated results of a generic instruction; empty for a row, whose rule is known to hold.
  std::vector<Stated> stated;
  // Number of operands, for programs with stated results.
  size_t operands = 0;
  // State while the program is being built: arguments of the next call, and the kernel before it.
  std::vector<Argument> pending;
  KernelCall pending_kernel;
  size_t temporaries = 0;
};

// The loop for an operator with these arguments; None if there is none.
LoopOperator loop_of(const c10::OperatorHandle& op, const std::vector<Argument>& arguments);

// The loop for the power of a call's operands by LoopOperator::Pow; None if GT has no loop for it.
LoopOperator power_of(const Call& call, const Operand* operands);

// Runs a call by a loop for a few numbers; false if its operands are for ATen.
bool run_small(const Call& call, const Operand* operands, c10::IValue& result);

// Runs a call by a loop for many numbers, where ATen has no vectors; false if it is for ATen.
bool run_long(const Call& call, const Operand* operands, c10::IValue& result);

// One of several instructions, each of which but the first takes the result of the one before.
struct JoinedStep {
  const Program* program;
  const Operand* operands;
  uint64_t from;  // operands, a bit each, that are that result; they are given as tensors without
                  // an address
};

// Runs the first step and as many behind it as can join it; returns the result, and in `joined` the
// number of steps, at least one; undefined, with nothing done, if none runs.
at::Tensor run_joined(const JoinedStep* steps, size_t count, size_t& joined);

// Runs an operator of ATen's that is cut over the batch; false, with nothing done, if that does not
// pay.
bool run_cut(const c10::OperatorHandle& op, Cut cut, const std::vector<c10::IValue>& values,
             std::vector<c10::IValue>& results);

// Text of the last error of this thread.
std::string& error_text();

}  // namespace gt
