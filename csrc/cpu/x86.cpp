// Detects the instruction sets of this x86-64 machine and selects the kernels' functions. Compiled
// for every x86-64, unlike the files of the functions.
#include "core/processor.h"
#include "cpu/array_path.h"
#include "cpu/attention/attention_path.h"
#include "cpu/matmul/matmul_path.h"
#include "cpu/random_path.h"
#include "cpu/recurrent/recurrent_path.h"

namespace gt {

CpuPath widest_cpu_path() {
  if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0) {
    return CpuPath::kScalar;
  }
  if (__builtin_cpu_supports("avx512f") == 0 || __builtin_cpu_supports("avx512bw") == 0 ||
      __builtin_cpu_supports("avx512dq") == 0 || __builtin_cpu_supports("avx512vl") == 0) {
    return CpuPath::kAvx2;
  }
  return __builtin_cpu_supports("avx512bf16") == 0 ? CpuPath::kAvx512 : CpuPath::kAvx512Bf16;
}

bool is_intel() { return __builtin_cpu_is("intel") != 0; }

extern constexpr PathTable<ArrayPath> kArrayPaths = {&kScalarArrays, &kAvx2Arrays, &kAvx512Arrays,
                                                     nullptr};
extern constexpr PathTable<RandomPath> kRandomPaths = {&kScalarRandom, &kAvx2Random, &kAvx512Random,
                                                       nullptr};
extern constexpr PathTable<MatmulPath<float>> kMatmulF32 = {&kScalarMatmulF32, &kAvx2MatmulF32,
                                                            &kAvx512MatmulF32, nullptr};
extern constexpr PathTable<MatmulPath<double>> kMatmulF64 = {&kScalarMatmulF64, &kAvx2MatmulF64,
                                                             &kAvx512MatmulF64, nullptr};
extern constexpr PathTable<MatmulPath<float>> kMatmulBf16 = {&kScalarMatmulF32, &kAvx2MatmulF32,
                                                             &kAvx512MatmulF32, &kAvx512MatmulBf16};
extern constexpr PathTable<RecurrentPath> kRecurrentPaths = {&kScalarRecurrent, &kAvx2Recurrent,
                                                             &kAvx512Recurrent, nullptr};
extern constexpr PathTable<AttentionPath> kAttention = {&kScalarAttention, &kAvx2Attention,
                                                        &kAvx512Attention, nullptr};

}  // namespace gt
