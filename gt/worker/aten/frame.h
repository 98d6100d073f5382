// State of one run of a program. Arguments of calls are made from it (arguments.cpp), and calls run
// on it (run.cpp), for one member or for a group (groups.cpp).
#pragma once

#include <ATen/Tensor.h>

#include <bit>

#include "program.h"

namespace gt {

using TensorPointer = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// Status codes in place of the number of results.
constexpr int FELL_THROUGH = -1;
constexpr int FAILED = -2;

// A tensor of another owner: its reference count stays as it is.
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

// Operands of one run, and the results of its calls so far.
struct Frame {
  const Operand* operands;
  std::vector<c10::IValue>& temporaries;
};

// The value of an argument; as a tensor, undefined for an argument that is none.
c10::IValue value(const Argument& argument, const Frame& frame);
at::Tensor tensor(const Argument& argument, const Frame& frame);

// Runs a call, whose results go behind the others; false if nothing here runs it.
bool execute(const Call& call, Frame& frame);

// Runs a program for several members, whose operands follow one another, `width` for each; calls of
// lists run once for all.
int run_group(const Program& program, const Operand* operands, size_t width, size_t members,
              void** results);

}  // namespace gt
