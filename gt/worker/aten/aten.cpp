// The whole helper as one translation unit: torch's headers are read once, which takes nearly all
// of the compile time.
#include "arguments.cpp"
#include "batch.cpp"
#include "build.cpp"
#include "choices.cpp"
#include "groups.cpp"
#include "host.cpp"
#include "joined.cpp"
#include "kernels.cpp"
#include "memory.cpp"
#include "objects.cpp"
#include "run.cpp"
#include "small.cpp"
