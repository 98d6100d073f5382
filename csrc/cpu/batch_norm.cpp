#include "cpu/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/pool.h"
#include "core/scratch.h"
#include "cpu/array_path.h"

namespace gt {
namespace {

// Numbers in one task, which takes about 5 us.
constexpr std::size_t kTogether = 16 * 1024;

// Minimum number of channels in a task, where each is a column: whole vectors and whole cache
// lines.
constexpr std::size_t kColumnsLeast = 64;

// Calls work(begin, end) for ranges of channels.
template <class Work>
void by_channels(const ChannelShape& shape, int threads, const Work& work) {
  const std::size_t size = std::max<std::size_t>(1, shape.batch * shape.inner);
  const std::size_t least = shape.inner == 1 ? kColumnsLeast : 1;
  const std::size_t together = std::clamp(kTogether / size, least, kColumnsTogether);
  const auto tasks = static_cast<std::int64_t>((shape.channels + together - 1) / together);
  run_tasks(tasks, threads, [&](std::int64_t task) {
    const std::size_t begin = static_cast<std::size_t>(task) * together;
    work(begin, std::min(begin + together, shape.channels));
  });
}

// Calls work(index of the channel's first number in a row of the batch), row after row.
template <class Work>
void in_rows(const ChannelShape& shape, std::size_t channel, const Work& work) {
  for (std::size_t row = 0; row < shape.batch; ++row) {
    work((row * shape.channels + channel) * shape.inner);
  }
}

// A range of channels as columns, where each channel is a column.
ColumnBlock columns_of(const ChannelShape& shape, std::size_t begin, std::size_t end) {
  return {shape.batch, shape.channels, end - begin};
}

// One channel's numbers in all rows of the batch.
ColumnBlock rows_of(const ChannelShape& shape) {
  return {shape.batch, shape.channels * shape.inner, shape.inner};
}

float of_channel(const float* given, std::size_t channel, float otherwise) {
  return given == nullptr ? otherwise : given[channel];
}

// Writes a channel's statistics from the sums of its numbers minus `shift`.
void write_statistics(const BatchNorm& call, std::size_t channel, const Spread& sums,
                      double shift) {
  const auto count = static_cast<double>(call.shape.batch * call.shape.inner);
  const double squares = sums.squares - sums.sum * sums.sum / count;
  const double spread = squares < 0.0 ? 0.0 : squares;  // NaN stays
  call.mean[channel] = static_cast<float>(shift + sums.sum / count);
  call.rstd[channel] = static_cast<float>(1.0 / std::sqrt(spread / count + call.eps));
  call.var[channel] = static_cast<float>(spread / (count - 1.0));
}

// Mean without a shift, for a channel whose first number is infinite: subtracting it would give
// NaN.
float plain_mean(const BatchNorm& call, std::size_t channel) {
  double sum = 0.0;
  in_rows(call.shape, channel, [&](std::size_t at) {
    for (std::size_t i = at; i < at + call.shape.inner; ++i) {
      sum += static_cast<double>(call.x[i]);
    }
  });
  return static_cast<float>(sum / static_cast<double>(call.shape.batch * call.shape.inner));
}

void find_statistics(const BatchNorm& call, std::size_t begin, std::size_t end) {
  const ArrayPath& path = array_path();
  if (call.shape.inner == 1) {
    Spread sums[kColumnsTogether];
    path.spread_columns(call.x + begin, columns_of(call.shape, begin, end), sums);
    for (std::size_t channel = begin; channel < end; ++channel) {
      write_statistics(call, channel, sums[channel - begin], static_cast<double>(call.x[channel]));
    }
  } else {
    for (std::size_t channel = begin; channel < end; ++channel) {
      const float shift = call.x[channel * call.shape.inner];
      const Spread sums =
          path.spread_rows(call.x + channel * call.shape.inner, shift, rows_of(call.shape));
      write_statistics(call, channel, sums, static_cast<double>(shift));
    }
  }
  for (std::size_t channel = begin; channel < end; ++channel) {
    if (!std::isfinite(call.mean[channel])) {
      call.mean[channel] = plain_mean(call, channel);
    }
  }
}

}  // namespace

void batch_norm(const BatchNorm& call, int threads) {
  const BatchNormLoops& loops = array_path().batch_norm;
  const ChannelShape& shape = call.shape;
  by_channels(shape, threads, [&](std::size_t begin, std::size_t end) {
    find_statistics(call, begin, end);
    float scales[kColumnsTogether], shifts[kColumnsTogether];
    for (std::size_t channel = begin; channel < end; ++channel) {
      scales[channel - begin] = call.rstd[channel] * of_channel(call.weight, channel, 1.0F);
      shifts[channel - begin] = of_channel(call.bias, channel, 0.0F);
    }
    if (shape.inner == 1) {
      const ChannelScale of{call.mean + begin, scales, shifts};
      in_rows(shape, begin, [&](std::size_t at) {
        loops.normalize_each(call.x + at, of, call.out + at, end - begin);
      });
      return;
    }
    for (std::size_t channel = begin; channel < end; ++channel) {
      const std::size_t place = channel - begin;
      const ChannelScale of{call.mean + channel, scales + place, shifts + place};
      in_rows(shape, channel, [&](std::size_t at) {
        loops.normalize(call.x + at, of, call.out + at, shape.inner);
      });
    }
  });
}

void batch_norm_backward(const BatchNormGradient& call, int threads) {
  const BatchNormLoops& loops = array_path().batch_norm;
  const ChannelShape& shape = call.shape;
  const auto count = static_cast<double>(shape.batch * shape.inner);
  by_channels(shape, threads, [&](std::size_t begin, std::size_t end) {
    GradSums sums[kColumnsTogether];
    if (shape.inner == 1) {
      loops.sums_of_columns(call.grad + begin, call.x + begin, call.mean + begin,
                            columns_of(shape, begin, end), sums);
    } else {
      for (std::size_t channel = begin; channel < end; ++channel) {
        const std::size_t at = channel * shape.inner;
        sums[channel - begin] =
            loops.sums_of_rows(call.grad + at, call.x + at, call.mean[channel], rows_of(shape));
      }
    }
    float levels[kColumnsTogether], slopes[kColumnsTogether], scales[kColumnsTogether];
    for (std::size_t channel = begin; channel < end; ++channel) {
      const std::size_t place = channel - begin;
      const auto rstd = static_cast<double>(call.rstd[channel]);
      levels[place] = static_cast<float>(sums[place].grad / count);
      slopes[place] = static_cast<float>(sums[place].product * rstd * rstd / count);
      scales[place] = call.rstd[channel] * of_channel(call.weight, channel, 1.0F);
      call.weight_grad[channel] = static_cast<float>(sums[place].product * rstd);
      call.bias_grad[channel] = static_cast<float>(sums[place].grad);
    }
    if (shape.inner == 1) {
      const ChannelSlope of{call.mean + begin, levels, slopes, scales};
      in_rows(shape, begin, [&](std::size_t at) {
        loops.backward_each(call.grad + at, call.x + at, of, call.x_grad + at, end - begin);
      });
      return;
    }
    for (std::size_t channel = begin; channel < end; ++channel) {
      const std::size_t place = channel - begin;
      const ChannelSlope of{call.mean + channel, levels + place, slopes + place, scales + place};
      in_rows(shape, channel, [&](std::size_t at) {
        loops.backward(call.grad + at, call.x + at, of, call.x_grad + at, shape.inner);
      });
    }
  });
}

}  // namespace gt
