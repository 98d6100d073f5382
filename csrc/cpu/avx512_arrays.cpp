// The array kernels' loops with AVX-512.
#include "cpu/array_loops.h"

namespace gt {

extern constexpr ArrayPath kAvx512Arrays = array_path_of();

}  // namespace gt
