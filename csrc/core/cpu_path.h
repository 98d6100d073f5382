// The instruction sets that kernels are written for, and the one in use: one choice for all
// kernels.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace gt {

// The narrowest first; a machine that runs one runs those before it.
enum class CpuPath : std::size_t { kScalar, kAvx2, kAvx512, kAvx512Bf16 };

constexpr std::size_t kCpuPaths = 4;

// A kernel's functions for each path. A path for which a kernel has nothing of its own holds null.
template <class Functions>
using PathTable = std::array<const Functions*, kCpuPaths>;

// The widest path that this machine can run. x86.cpp asks the processor, no_x86.cpp stands in.
CpuPath widest_cpu_path();

// The path in use: at first the widest one.
CpuPath cpu_path();

// Names of the paths that this machine can run, the narrowest first.
std::vector<std::string> cpu_path_names();

// Args: name, one of cpu_path_names() or "auto". Throws std::invalid_argument for others.
void choose_cpu_path(const std::string& name);

// The functions for the path in use, or for the widest one below it that has some.
template <class Functions>
const Functions& of_path(const PathTable<Functions>& table) {
  auto path = static_cast<std::size_t>(cpu_path());
  while (table[path] == nullptr) {
    --path;  // the scalar path is never null
  }
  return *table[path];
}

}  // namespace gt
