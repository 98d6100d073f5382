// The array kernels' loops with plain C++, for every machine.
#include "cpu/array_loops.h"

namespace gt {

extern constexpr ArrayPath kScalarArrays = array_path_of();

}  // namespace gt
