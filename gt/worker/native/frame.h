// What a run of a program has. Of it the arguments of calls are made (arguments.cpp), and calls run
// (run.cpp), for one or for a group (groups.cpp).
#pragma once

#include <ATen/Tensor.h>

#include <bit>

#include "program.h"

namespace gt {

using TensorPointer = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// In place of how many results there are.
constexpr int FELL_THROUGH = -1;
constexpr int FAILED = -2;

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

// What an argument is; as a tensor, which is undefined where it is none.
c10::IValue value(const Argument& argument, const Frame& frame);
at::Tensor tensor(const Argument& argument, const Frame& frame);

// Runs a call, whose results go behind the others; false where nobody here runs it.
bool execute(const Call& call, Frame& frame);

// A program for several members, whose operands follow one another, `width` of each: calls of lists
// once for all.
int run_group(const Program& program, const Operand* operands, size_t width, size_t members,
              void** results);

}  // namespace gt
