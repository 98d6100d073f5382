// The processor's family, or the one that a test has chosen, as one atomic word.
#include "core/processor.h"

#include <atomic>
#include <stdexcept>

#include "core/cpu_path.h"
#include "core/message.h"

namespace gt {
namespace {

constexpr int kThisMachines = -1;

std::atomic<int> chosen{kThisMachines};

}  // namespace

Processor processor() {
  const int family = chosen.load(std::memory_order_relaxed);
  if (family != kThisMachines) {
    return static_cast<Processor>(family);
  }
  const bool has_avx512 = cpu_path() >= CpuPath::kAvx512;
  return has_avx512 && is_intel() ? Processor::kIntelAvx512 : Processor::kOther;
}

void choose_processor(const std::string& name) {
  const bool is_known = name == "auto" || name == "other" || name == "intel_avx512";
  if (!is_known) {
    throw std::invalid_argument(
        message("set_processor: '", name, "' is none of auto, other, intel_avx512"));
  }
  const auto family = name == "other" ? Processor::kOther : Processor::kIntelAvx512;
  chosen.store(name == "auto" ? kThisMachines : static_cast<int>(family),
               std::memory_order_relaxed);
}

}  // namespace gt
