// Matrix multiplication with plain C++, for every machine.
#include "cpu/matmul/loops.h"

namespace gt {

extern constexpr MatmulPath<float> kScalarMatmulF32 = matmul_path<float>();
extern constexpr MatmulPath<double> kScalarMatmulF64 = matmul_path<double>();

}  // namespace gt
