// How the helper calls the kernels of gt._kernels: plain C, so that neither is linked against the
// other. csrc/bind/kernel_calls.cpp has the other end, and says what each kernel is given.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gt {

// A float32 tensor in the host's memory; strides count elements. One that is absent has no sizes.
struct KernelTensor {
  void* data;
  const int64_t* sizes;
  const int64_t* strides;
  int32_t dims;
};

// Zero; else `text` says what does not fit, cut to `text_bytes` with the zero at its end.
using KernelCall = int (*)(const KernelTensor* tensors, const double* numbers, int threads,
                           char* text, size_t text_bytes);

}  // namespace gt
