// The instruction set in use, as one atomic word. No arithmetic here.
#include "core/cpu_path.h"

#include <atomic>
#include <stdexcept>

#include "core/message.h"

namespace gt {
namespace {

constexpr const char* kNames[kCpuPaths] = {"scalar", "avx2", "avx512", "avx512_bf16"};

// All threads read this word; a change applies to calls that start after it.
std::atomic<CpuPath>& chosen_path() {
  static std::atomic<CpuPath> path{widest_cpu_path()};
  return path;
}

}  // namespace

CpuPath cpu_path() { return chosen_path().load(std::memory_order_relaxed); }

std::vector<std::string> cpu_path_names() {
  return {kNames, kNames + static_cast<std::size_t>(widest_cpu_path()) + 1};
}

void choose_cpu_path(const std::string& name) {
  const std::vector<std::string> names = cpu_path_names();
  std::string all = "auto";
  for (std::size_t path = 0; path < names.size(); ++path) {
    if (name == names[path] || (name == "auto" && path + 1 == names.size())) {
      chosen_path().store(static_cast<CpuPath>(path), std::memory_order_relaxed);
      return;
    }
    all += ", " + names[path];
  }
  throw std::invalid_argument(
      message("set_path: '", name, "' is not available here, choose from ", all));
}

}  // namespace gt
