// Matrix multiplication with AVX2 and FMA. This file alone is compiled with these.
#include "cpu/matmul/loops.h"

namespace gt {

extern constexpr MatmulPath<float> kAvx2MatmulF32 = matmul_path<float>();
extern constexpr MatmulPath<double> kAvx2MatmulF64 = matmul_path<double>();

}  // namespace gt
