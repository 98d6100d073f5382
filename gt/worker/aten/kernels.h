// Runs GT's own kernels (csrc/table, in gt._kernels) on ATen's tensors, by their one entry.
#pragma once

#include <ATen/Tensor.h>

#include <array>
#include <bit>
#include <exception>
#include <vector>

#include "frame.h"
#include "kernel_table.h"

namespace gt {

struct KernelSettings {
  KernelEntry (*find)(const char* name, int* results) = nullptr;
  KernelEntry row_major = nullptr;
  // Threads for products and updates, which are cheap to wake; other kernels have as many as ATen's
  // at the moment.
  int threads_most = 1;
  // True for GT_KERNELS=on.
  bool takes_all = false;
};

extern KernelSettings kernel_settings;

// A tensor in the form for kernels; KernelElement::Other if no kernel reads it.
KernelTensor kernel_tensor(const c10::TensorImpl& tensor);

inline const c10::TensorImpl* impl_of(const Operand& operand) {
  return std::bit_cast<const c10::TensorImpl*>(operand.bits);
}

// The tensor of an operand, with its reference counted.
inline at::Tensor counted(const Operand& operand) {
  return at::Tensor(TensorPointer::reclaim_copy(const_cast<c10::TensorImpl*>(impl_of(operand))));
}

// The arguments of one call. Their owners keep tensors and lists alive.
class KernelInput {
 public:
  // Adds arguments; false for a list of tensors, or for more arguments than a kernel has.
  bool push(const std::vector<Argument>& arguments, const Frame& frame);
  bool push(const Argument& argument, const Frame& frame);
  void push(const at::Tensor& tensor);

  // The argument at `place`, counted from the end.
  KernelArgument& from_end(size_t place) { return arguments_[count_ - 1 - place]; }
  const KernelArgument* data() const { return arguments_.data(); }
  size_t count() const { return count_; }

 private:
  static constexpr size_t ARGUMENTS_MAX = 16;

  std::array<KernelArgument, ARGUMENTS_MAX> arguments_;
  size_t count_ = 0;
};

// Runs a kernel and appends its results to `results`; false, with nothing done, if it does not take
// the call.
bool run_kernel(KernelEntry kernel, const KernelInput& input, std::vector<c10::IValue>& results);

// Runs a call's kernel, and ATen's operator on the rows that it leaves open.
bool execute_kernel(const Call& call, Frame& frame);

// The elements in row-major order: a copy, or with `row_major` the tensor itself if it is so.
at::Tensor row_major_copy(const at::Tensor& x);
at::Tensor row_major(const at::Tensor& x);

// Reshapes as aten::reshape does: by a row-major copy if no strides show the tensor in these sizes.
at::Tensor reshape(const at::Tensor& x, const std::vector<int64_t>& sizes);

}  // namespace gt
