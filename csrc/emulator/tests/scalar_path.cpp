// Replaces cpu/x86.cpp: tests compare kernels with the scalar path alone.
#include "cpu/random_path.h"

namespace gt {

CpuPath widest_cpu_path() { return CpuPath::kScalar; }

extern constexpr PathTable<RandomPath> kRandomPaths = {&kScalarRandom};

}  // namespace gt
