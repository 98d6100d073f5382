#include "cpu/pooling/avg_pool.h"

#include <algorithm>

#include "core/pool.h"

namespace gt {
namespace {

// Elements in one task, which takes about 20 us.
constexpr std::int64_t kElementsPerTask = 32 * 1024;

// A window along one dimension: the pixels inside it, and the number that counts in the mean.
struct Seen {
  std::int64_t first, last, counted;
};

Seen seen(std::int64_t place, std::int64_t size, std::int64_t kernel, std::int64_t stride,
          std::int64_t pad) {
  const std::int64_t start = place * stride - pad;
  const std::int64_t end = std::min(start + kernel, size + pad);
  return {std::max<std::int64_t>(start, 0), std::min(end, size), end - start};
}

// Calls visit(plane, place, rows, columns, divisor) for each window.
template <class Visit>
void each_window(const MeanPool& call, const Visit& visit) {
  const ImageWindow& w = call.window;
  const std::int64_t work = call.places.height * call.places.width * w.kernel_h * w.kernel_w;
  const std::int64_t planes_of_task =
      std::max<std::int64_t>(kElementsPerTask / std::max<std::int64_t>(work, 1), 1);
  const std::int64_t tasks = (call.planes + planes_of_task - 1) / planes_of_task;
  run_tasks(tasks, call.threads, [&](std::int64_t task) {
    const std::int64_t end = std::min((task + 1) * planes_of_task, call.planes);
    for (std::int64_t plane = task * planes_of_task; plane < end; ++plane) {
      std::int64_t place = 0;
      for (std::int64_t i = 0; i < call.places.height; ++i) {
        const Seen rows = seen(i, call.size.height, w.kernel_h, w.stride_h, w.pad_h);
        for (std::int64_t j = 0; j < call.places.width; ++j, ++place) {
          const Seen columns = seen(j, call.size.width, w.kernel_w, w.stride_w, w.pad_w);
          const std::int64_t inside = (rows.last - rows.first) * (columns.last - columns.first);
          const std::int64_t counted =
              call.counts_padding ? rows.counted * columns.counted : inside;
          const std::int64_t divisor = call.divisor != 0 ? call.divisor : counted;
          visit(plane, place, rows, columns, static_cast<float>(divisor));
        }
      }
    }
  });
}

}  // namespace

void mean_pool(const MeanPool& call, const float* input, float* out) {
  const std::int64_t pixels = call.size.height * call.size.width;
  const std::int64_t windows = call.places.height * call.places.width;
  each_window(call,
              [&](std::int64_t plane, std::int64_t place, Seen rows, Seen columns, float divisor) {
                float sum = 0;
                for (std::int64_t i = rows.first; i < rows.last; ++i) {
                  const float* row = input + plane * pixels + i * call.size.width;
                  for (std::int64_t j = columns.first; j < columns.last; ++j) {
                    sum += row[j];
                  }
                }
                out[plane * windows + place] = sum / divisor;
              });
}

void mean_pool_backward(const MeanPool& call, const float* grad, float* input_grad) {
  const std::int64_t pixels = call.size.height * call.size.width;
  const std::int64_t windows = call.places.height * call.places.width;
  std::fill_n(input_grad, call.planes * pixels, 0.0F);
  each_window(call,
              [&](std::int64_t plane, std::int64_t place, Seen rows, Seen columns, float divisor) {
                const float share = grad[plane * windows + place] / divisor;
                for (std::int64_t i = rows.first; i < rows.last; ++i) {
                  float* row = input_grad + plane * pixels + i * call.size.width;
                  for (std::int64_t j = columns.first; j < columns.last; ++j) {
                    row[j] += share;
                  }
                }
              });
}

void max_pool_backward(std::int64_t planes, std::int64_t windows, std::int64_t pixels, int threads,
                       const float* grad, const std::int64_t* from, float* input_grad) {
  run_tasks(planes, windows + pixels < 512 ? 1 : threads, [&](std::int64_t plane) {
    float* to = input_grad + plane * pixels;
    std::fill_n(to, pixels, 0.0F);
    for (std::int64_t window = plane * windows; window < (plane + 1) * windows; ++window) {
      to[from[window]] += grad[window];
    }
  });
}

}  // namespace gt
