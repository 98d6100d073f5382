// What this x86-64 machine can run. Compiled for every x86-64, unlike the files it offers.
#include "cpu/random_path.h"

namespace gt {

const RandomPath* avx2_random_path() {
  return __builtin_cpu_supports("avx2") != 0 ? &kAvx2Random : nullptr;
}

const RandomPath* avx512_random_path() {
  const bool supported =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return supported ? &kAvx512Random : nullptr;
}

}  // namespace gt
