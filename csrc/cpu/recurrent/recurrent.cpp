#include "cpu/recurrent/recurrent.h"

#include <algorithm>
#include <initializer_list>
#include <stdexcept>

#include "core/message.h"
#include "core/parallel.h"
#include "core/pool.h"

namespace gt {
namespace {

constexpr std::int64_t kGates[] = {4, 3, 1, 1};

// This many multiplications take about 100 us, well above the cost of waking a thread.
constexpr std::int64_t kProductsPerThreadMin = 2 * 1024 * 1024;

struct alignas(64) Line {
  float values[16];
};

std::int64_t padded(std::int64_t units, std::int64_t width) {
  return (units + width - 1) / width * width;
}

std::vector<Line> room(std::int64_t floats) {
  return std::vector<Line>(static_cast<std::size_t>((floats + 15) / 16));
}

// Packs [gate, unit, k] as [panel, k, gate, unit of the panel], with zeros beyond the last unit.
std::vector<Line> pack_forward(const float* weight, std::int64_t gates, std::int64_t units,
                               std::int64_t width) {
  std::vector<Line> lines = room(padded(units, width) * gates * units);
  float* panels = lines.data()->values;
  for (std::int64_t gate = 0; gate < gates; ++gate) {
    for (std::int64_t unit = 0; unit < units; ++unit) {
      const float* from = weight + (gate * units + unit) * units;
      float* to = panels + (unit / width * units * gates + gate) * width + unit % width;
      for (std::int64_t k = 0; k < units; ++k) {
        to[k * gates * width] = from[k];
      }
    }
  }
  return lines;
}

// Packs [k of all gates, unit] as [panel, k, unit of the panel], with zeros beyond the last unit.
std::vector<Line> pack_backward(const float* weight, std::int64_t depth, std::int64_t units,
                                std::int64_t width) {
  std::vector<Line> lines = room(padded(units, width) * depth);
  float* panels = lines.data()->values;
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t unit = 0; unit < units; ++unit) {
      panels[(unit / width * depth + k) * width + unit % width] = weight[k * units + unit];
    }
  }
  return lines;
}

void check(const char* op, const RecurrentSizes& sizes, int threads,
           std::initializer_list<const void*> needed) {
  if (sizes.steps < 1 || sizes.rows < 1 || sizes.units < 1) {
    throw std::invalid_argument(message(op, ": ", sizes.steps, " steps of ", sizes.rows,
                                        " rows and ", sizes.units, " units: all must be positive"));
  }
  if (threads < 1 || threads > kThreadsMax) {
    throw std::invalid_argument(
        message(op, ": threads ", threads, " is not in [1, ", kThreadsMax, "]"));
  }
  for (const void* array : needed) {
    if (array == nullptr) {
      throw std::invalid_argument(message(op, ": an array is missing"));
    }
  }
}

// Calls work(begin, end) for ranges of the rows.
template <class Work>
void over_rows(const RecurrentSizes& sizes, std::int64_t gates, int threads, const Work& work) {
  const std::int64_t products = sizes.steps * gates * sizes.units * sizes.units;
  const std::int64_t least = std::max<std::int64_t>(1, kProductsPerThreadMin / products);
  const auto parts = std::clamp<std::int64_t>(sizes.rows / least, 1, threads);
  run_tasks(parts, threads, [&](std::int64_t part) {
    work(sizes.rows * part / parts, sizes.rows * (part + 1) / parts);
  });
}

}  // namespace

void recurrent_forward(Recurrence kind, const RecurrentSizes& sizes, const RecurrentForward& in,
                       const float* weight, int threads) {
  check("recurrent_forward", sizes, threads, {in.gates, in.hidden, in.output, weight});
  if (kind == Recurrence::kLstm) {
    check("recurrent_forward", sizes, threads, {in.cell, in.cells});
  }
  if (kind == Recurrence::kLstm || kind == Recurrence::kGru) {
    check("recurrent_forward", sizes, threads, {in.activations});
  }
  const RecurrentPath& path = of_path(kRecurrentPaths);
  const std::int64_t gates = kGates[static_cast<int>(kind)];
  const std::vector<Line> lines = pack_forward(weight, gates, sizes.units, path.width);
  RecurrentForward packed = in;
  packed.panels = lines.data()->values;
  over_rows(sizes, gates, threads, [&](std::int64_t begin, std::int64_t end) {
    path.forward[static_cast<int>(kind)](sizes, packed, begin, end);
  });
}

void recurrent_backward(Recurrence kind, const RecurrentSizes& sizes, const RecurrentBackward& in,
                        const float* weight, int threads) {
  check("recurrent_backward", sizes, threads,
        {in.grad, in.hidden, in.output, in.grads, in.grads_state, in.grad_hidden, weight});
  if (kind == Recurrence::kLstm) {
    check("recurrent_backward", sizes, threads, {in.cell, in.cells, in.grad_cell});
  }
  if (kind == Recurrence::kLstm || kind == Recurrence::kGru) {
    check("recurrent_backward", sizes, threads, {in.activations});
  }
  const RecurrentPath& path = of_path(kRecurrentPaths);
  const std::int64_t gates = kGates[static_cast<int>(kind)];
  const std::vector<Line> lines =
      pack_backward(weight, gates * sizes.units, sizes.units, path.width);
  RecurrentBackward packed = in;
  packed.panels = lines.data()->values;
  over_rows(sizes, gates, threads, [&](std::int64_t begin, std::int64_t end) {
    path.backward[static_cast<int>(kind)](sizes, packed, begin, end);
  });
}

}  // namespace gt
