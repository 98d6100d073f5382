// The array kernels' loops with AVX2.
#include "cpu/array_loops.h"

namespace gt {

extern constexpr ArrayPath kAvx2Arrays = array_path_of();

}  // namespace gt
