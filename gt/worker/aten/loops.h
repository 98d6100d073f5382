// Loops of gt._kernels over elements, for chains, choices and comparisons (joined.cpp,
// choices.cpp).
#pragma once

#include <ATen/Tensor.h>
#include <c10/util/Exception.h>

#include <initializer_list>

#include "kernel_calls.h"
#include "kernels.h"

namespace gt {

constexpr size_t ERROR_BYTES = 512;

// None, until they are there.
struct Loops {
  LoopCall chain = nullptr;
  LoopCall choice = nullptr;
  LoopCall comparison = nullptr;
};

extern Loops loops;

// Threads of a loop over so many elements times steps.
inline int threads_for(int64_t work) {
  // From here on threads are worth waking, in one pass over memory.
  constexpr int64_t SHARED_WORK_MIN = 1 << 18;
  return work >= SHARED_WORK_MIN ? kernel_settings.threads_most : 1;
}

inline void call(LoopCall loop, std::initializer_list<KernelTensor> tensors,
                 std::initializer_list<double> numbers, int threads) {
  char text[ERROR_BYTES];
  int status = loop(tensors.begin(), numbers.begin(), threads, text, sizeof text);
  TORCH_CHECK(status == 0, text);
}

// The result of an instruction of LoopOperator::Where or LoopOperator::MaskedFill over elements of
// any dtype but float32; undefined, with nothing done, where ATen is to run it.
at::Tensor chosen(const Call& call, const Operand* operands);

}  // namespace gt
