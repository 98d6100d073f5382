#include "cpu/norms.h"

#include <algorithm>
#include <cstdint>

#include "core/pool.h"
#include "core/scratch.h"
#include "cpu/array_path.h"

namespace gt {
namespace {

// Numbers in one task of the forward pass, which takes about 5 us.
constexpr std::size_t kTogether = 16 * 1024;

// Rows in one task of the backward pass. Rows add to the weight's gradient one after another within
// a task, then the tasks' sums are added: one chain over all rows would lose digits.
constexpr std::size_t kRowsTogether = 64;

std::int64_t tasks_of(std::size_t rows, std::size_t together) {
  return static_cast<std::int64_t>((rows + together - 1) / together);
}

}  // namespace

void rms_norm(const RmsNorm& call, int threads) {
  const auto loop = array_path().rms_norm;
  const std::size_t together =
      std::max<std::size_t>(1, kTogether / std::max<std::size_t>(1, call.columns));
  run_tasks(tasks_of(call.rows, together), threads, [&](std::int64_t task) {
    const std::size_t begin = static_cast<std::size_t>(task) * together;
    const std::size_t end = std::min(begin + together, call.rows);
    for (std::size_t row = begin; row < end; ++row) {
      const std::size_t at = row * call.columns;
      call.rstd[row] = loop(call.x + at, call.weight, call.eps, call.out + at, call.columns);
    }
  });
}

void rms_norm_backward(const RmsNormGradient& call, int threads) {
  thread_local Scratch scratch;
  const ArrayPath& path = array_path();
  const std::int64_t tasks = tasks_of(call.rows, kRowsTogether);
  const std::size_t columns = call.columns;
  float* sums = scratch.numbers<float>(tasks * static_cast<std::int64_t>(columns));
  run_tasks(tasks, threads, [&](std::int64_t task) {
    const std::size_t begin = static_cast<std::size_t>(task) * kRowsTogether;
    const std::size_t end = std::min(begin + kRowsTogether, call.rows);
    float* sum = sums + static_cast<std::size_t>(task) * columns;
    std::fill_n(sum, columns, 0.0F);
    const std::size_t at = begin * columns;
    path.rms_norm_backward(call.grad + at, call.x + at, call.rstd + begin, call.weight,
                           call.x_grad + at, sum, end - begin, columns);
  });
  const Reduction& reduction = path.reductions[static_cast<std::size_t>(Reduce::kSum)];
  reduction.columns(sums, static_cast<std::size_t>(tasks), columns, call.weight_grad);
}

}  // namespace gt
