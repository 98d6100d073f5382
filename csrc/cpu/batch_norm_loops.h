// Batch norm of one channel's adjacent numbers, or of a row with one number of each channel. Loops
// of ArrayPath; included by array_loops.h alone, nothing here may have external linkage.
#pragma once

#include <algorithm>
#include <cstddef>

#include "cpu/array_path.h"
#include "cpu/reduction_loops.h"
#include "cpu/vector.h"

namespace gt {
namespace {

// One number in place of a row of numbers.
struct Same {
  float value;
  float operator[](std::size_t /*i*/) const { return value; }
};

template <class Numbers>
void normalize_of(const float* __restrict x, Numbers mean, Numbers scale, Numbers shift,
                  float* __restrict out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = (x[i] - mean[i]) * scale[i] + shift[i];
  }
}

template <class Numbers>
void normalize_backward_of(const float* __restrict grad, const float* __restrict x, Numbers mean,
                           Numbers level, Numbers slope, Numbers scale, float* __restrict out,
                           std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = (grad[i] - level[i] - (x[i] - mean[i]) * slope[i]) * scale[i];
  }
}

void normalize(const float* x, const ChannelScale& of, float* out, std::size_t count) {
  normalize_of(x, Same{*of.mean}, Same{*of.scale}, Same{*of.shift}, out, count);
}

void normalize_each(const float* x, const ChannelScale& of, float* out, std::size_t count) {
  normalize_of<const float* __restrict>(x, of.mean, of.scale, of.shift, out, count);
}

void normalize_backward(const float* grad, const float* x, const ChannelSlope& of, float* out,
                        std::size_t count) {
  normalize_backward_of(grad, x, Same{*of.mean}, Same{*of.level}, Same{*of.slope}, Same{*of.scale},
                        out, count);
}

void normalize_backward_each(const float* grad, const float* x, const ChannelSlope& of, float* out,
                             std::size_t count) {
  normalize_backward_of<const float* __restrict>(grad, x, of.mean, of.level, of.slope, of.scale,
                                                 out, count);
}

// Sums in kPlaces accumulators, the same number for every instruction set.
struct PlaceSums {
  static constexpr std::size_t kWidth = kLanes<float>;
  static constexpr std::size_t kVectors = kPlaces / kWidth;
  Vector<float> sums[kVectors] = {}, products[kVectors] = {};

  inline void add(std::size_t at, Vector<float> grad, Vector<float> x, Vector<float> mean) {
    sums[at] += grad;
    products[at] += grad * (x - mean);
  }
};

inline double total_of(const Vector<float> (&sums)[PlaceSums::kVectors],
                       const float (&rests)[kPlaces]) {
  float places[kPlaces];
  for (std::size_t at = 0; at < PlaceSums::kVectors; ++at) {
    store(places + at * PlaceSums::kWidth, sums[at]);
  }
  for (std::size_t place = 0; place < kPlaces; ++place) {
    places[place] += rests[place];
  }
  return static_cast<double>(combined(places, Sum::of));
}

// Sums over rows that have, together, at most as many elements as one float32 sum may take.
GradSums grad_sums_of_few(const float* grad, const float* x, float mean, const ColumnBlock& block) {
  constexpr std::size_t kWidth = PlaceSums::kWidth;
  const Vector<float> means = splat(mean);
  PlaceSums sums;
  float rests[2][kPlaces] = {};
  for (std::size_t row = 0; row < block.rows; ++row) {
    const float* g = grad + row * block.stride;
    const float* values = x + row * block.stride;
    std::size_t i = 0;
    for (; i + kPlaces <= block.columns; i += kPlaces) {
      for (std::size_t at = 0; at < PlaceSums::kVectors; ++at) {
        sums.add(at, load(g + i + at * kWidth), load(values + i + at * kWidth), means);
      }
    }
    for (std::size_t place = 0; i < block.columns; ++i, ++place) {
      rests[0][place] += g[i];
      rests[1][place] += g[i] * (values[i] - mean);
    }
  }
  return {total_of(sums.sums, rests[0]), total_of(sums.products, rests[1])};
}

// Sums over parts of a row, or over several rows at a time; the parts are added in float64.
GradSums grad_sums_of_rows(const float* grad, const float* x, float mean,
                           const ColumnBlock& block) {
  const std::size_t together = std::max<std::size_t>(1, kRowBlock / block.columns);
  GradSums totals{0.0, 0.0};
  for (std::size_t row = 0; row < block.rows; row += together) {
    for (std::size_t start = 0; start < block.columns; start += kRowBlock) {
      const std::size_t at = row * block.stride + start;
      const ColumnBlock few{std::min(together, block.rows - row), block.stride,
                            std::min(kRowBlock, block.columns - start)};
      const GradSums part = grad_sums_of_few(grad + at, x + at, mean, few);
      totals.grad += part.grad;
      totals.product += part.product;
    }
  }
  return totals;
}

void grad_sums_of_columns(const float* __restrict grad, const float* __restrict x,
                          const float* __restrict mean, const ColumnBlock& block,
                          GradSums* __restrict out) {
  double sums[kColumnsTogether], products[kColumnsTogether];
  std::fill_n(sums, block.columns, 0.0);
  std::fill_n(products, block.columns, 0.0);
  for (std::size_t row = 0; row < block.rows; ++row) {
    const float* __restrict g = grad + row * block.stride;
    const float* __restrict values = x + row * block.stride;
    for (std::size_t i = 0; i < block.columns; ++i) {
      sums[i] += static_cast<double>(g[i]);
      products[i] += static_cast<double>(g[i] * (values[i] - mean[i]));
    }
  }
  for (std::size_t i = 0; i < block.columns; ++i) {
    out[i] = {sums[i], products[i]};
  }
}

}  // namespace
}  // namespace gt
