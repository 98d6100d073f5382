// Functions that compile for the CPU and for CUDA devices.
#pragma once

#ifdef __CUDACC__
#define GT_HOST_DEVICE __host__ __device__
#else
#define GT_HOST_DEVICE
#endif

namespace gt {
namespace {

// Square roots, rounded to nearest.
GT_HOST_DEVICE inline float rounded_sqrt(float value) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(value);
#else
  return __builtin_sqrtf(value);
#endif
}
GT_HOST_DEVICE inline double rounded_sqrt(double value) {
#ifdef __CUDA_ARCH__
  return __dsqrt_rn(value);
#else
  return __builtin_sqrt(value);
#endif
}

}  // namespace
}  // namespace gt
