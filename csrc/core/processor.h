// Families of processors between which the sizes differ from which kernels pay. The family follows
// from the processor's name, and nothing is measured: bits depend on which kernel runs.
#pragma once

#include <string>

namespace gt {

enum class Processor { kOther, kIntelAvx512 };

// True on a processor of Intel's. x86.cpp asks the processor, no_x86.cpp stands in.
bool is_intel();

// This machine's family, for the instruction set in use.
Processor processor();

// For tests. Args: name, "other", "intel_avx512", or "auto" for this machine's. Throws
// std::invalid_argument for others.
void choose_processor(const std::string& name);

}  // namespace gt
