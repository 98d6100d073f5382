// Stands in for x86.cpp and for the files avx2_*.cpp and avx512_*.cpp on other machines.
#include "cpu/random_path.h"

namespace gt {

const RandomPath* avx2_random_path() { return nullptr; }

const RandomPath* avx512_random_path() { return nullptr; }

}  // namespace gt
