// Tables of kernels on machines other than x86-64: the portable paths only.
#include "core/processor.h"
#include "cpu/array_path.h"
#include "cpu/attention/attention_path.h"
#include "cpu/matmul/matmul_path.h"
#include "cpu/random_path.h"
#include "cpu/recurrent/recurrent_path.h"

namespace gt {

CpuPath widest_cpu_path() { return CpuPath::kScalar; }

bool is_intel() { return false; }

extern constexpr PathTable<ArrayPath> kArrayPaths = {&kScalarArrays};
extern constexpr PathTable<RandomPath> kRandomPaths = {&kScalarRandom};
extern constexpr PathTable<MatmulPath<float>> kMatmulF32 = {&kScalarMatmulF32};
extern constexpr PathTable<MatmulPath<double>> kMatmulF64 = {&kScalarMatmulF64};
extern constexpr PathTable<MatmulPath<float>> kMatmulBf16 = {&kScalarMatmulF32};
extern constexpr PathTable<RecurrentPath> kRecurrentPaths = {&kScalarRecurrent};
extern constexpr PathTable<AttentionPath> kAttention = {&kScalarAttention};

}  // namespace gt
