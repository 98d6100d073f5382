#include "cpu/updates.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/pool.h"

namespace gt {
namespace {

// Numbers in one task, which takes about 6 us.
constexpr std::size_t kTogether = 16 * 1024;

float narrow(double value) { return static_cast<float>(value); }

}  // namespace

AdamStep adam_step(const AdamNumbers& n) {
  return {
      .decay = n.decoupled ? narrow(1.0 - n.lr * n.weight_decay) : 1.0F,
      .penalty = n.decoupled ? 0.0F : narrow(n.weight_decay),
      .beta1 = narrow(n.beta1),
      .beta2 = narrow(n.beta2),
      .rest1 = narrow(1.0 - n.beta1),
      .rest2 = narrow(1.0 - n.beta2),
      .step_size = narrow(n.lr / (1.0 - std::pow(n.beta1, n.step))),
      .root_bias = narrow(std::sqrt(1.0 - std::pow(n.beta2, n.step))),
      .eps = narrow(n.eps),
      .sign = n.maximize ? -1.0F : 1.0F,
  };
}

void adam(const AdamArrays& arrays, const AdamStep& step, int threads) {
  const ArrayPath& path = array_path();
  const auto tasks = static_cast<std::int64_t>((arrays.count + kTogether - 1) / kTogether);
  run_tasks(tasks, threads, [&](std::int64_t task) {
    const std::size_t begin = static_cast<std::size_t>(task) * kTogether;
    const std::size_t count = std::min(kTogether, arrays.count - begin);
    float* max_sq = arrays.max_sq == nullptr ? nullptr : arrays.max_sq + begin;
    path.adam(arrays.param + begin, arrays.grad + begin, arrays.avg + begin, arrays.avg_sq + begin,
              max_sq, step, count);
  });
}

}  // namespace gt
