// Matrix multiplication with AVX-512 (F, BW, DQ, VL). This file alone is compiled with these.
#include "cpu/matmul/loops.h"

namespace gt {

extern constexpr MatmulPath<float> kAvx512MatmulF32 = matmul_path<float>();
extern constexpr MatmulPath<double> kAvx512MatmulF64 = matmul_path<double>();

}  // namespace gt
