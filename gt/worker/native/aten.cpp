// All of the helper as one translation unit: torch's headers are read once, which is nearly all of
// the time it takes.
#include "batch.cpp"
#include "build.cpp"
#include "joined.cpp"
#include "memory.cpp"
#include "own.cpp"
#include "own_attention.cpp"
#include "own_dims.cpp"
#include "own_norm.cpp"
#include "own_recurrent.cpp"
#include "run.cpp"
#include "small.cpp"
