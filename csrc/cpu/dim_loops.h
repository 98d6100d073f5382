// Loops along one dimension: running sums, indices of extreme numbers, any and all, variances. Part
// of ArrayPath; included by array_loops.h alone, nothing here may have external linkage.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/array_path.h"
#include "cpu/reduction_loops.h"
#include "cpu/vector.h"

namespace gt {
namespace {

// Tiles of eight numbers of eight rows are transposed, so that each row has its own chain of
// additions.
constexpr std::size_t kTile = 8;
typedef float TileRow __attribute__((vector_size(kTile * sizeof(float))));
typedef double TileSums __attribute__((vector_size(kTile * sizeof(double))));

inline void turn(TileRow (&t)[kTile]) {
  TileRow pairs[kTile], fours[kTile];
  for (std::size_t i = 0; i < kTile; i += 2) {
    pairs[i] = __builtin_shufflevector(t[i], t[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    pairs[i + 1] = __builtin_shufflevector(t[i], t[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (std::size_t i = 0; i < kTile; i += 4) {
    for (std::size_t at = i; at < i + 2; ++at) {
      fours[at] = __builtin_shufflevector(pairs[at], pairs[at + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      fours[at + 2] = __builtin_shufflevector(pairs[at], pairs[at + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (std::size_t i = 0; i < 4; ++i) {
    t[i] = __builtin_shufflevector(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    t[i + 4] = __builtin_shufflevector(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// Returns the number of columns done; 0 where registers are narrower than a tile's sums.
inline std::size_t cumsum_of_tiles(const float* __restrict x, float* __restrict out,
                                   std::size_t count, double (&sums)[kTile]) {
  std::size_t i = 0;
  if constexpr (kVectorBytes >= sizeof(TileSums)) {
    TileSums running = {};
    for (; i + kTile <= count; i += kTile) {
      TileRow tile[kTile];
      for (std::size_t row = 0; row < kTile; ++row) {
        std::memcpy(&tile[row], x + row * count + i, sizeof tile[row]);
      }
      turn(tile);
      for (TileRow& column : tile) {
        running += __builtin_convertvector(column, TileSums);
        column = __builtin_convertvector(running, TileRow);
      }
      turn(tile);
      for (std::size_t row = 0; row < kTile; ++row) {
        std::memcpy(out + row * count + i, &tile[row], sizeof tile[row]);
      }
    }
    std::memcpy(sums, &running, sizeof running);
  }
  return i;
}

void cumsum_of_eight(const float* __restrict x, float* __restrict out, std::size_t count) {
  double sums[kTile] = {};
  for (std::size_t i = cumsum_of_tiles(x, out, count, sums); i < count; ++i) {
    for (std::size_t row = 0; row < kTile; ++row) {
      sums[row] += static_cast<double>(x[row * count + i]);
      out[row * count + i] = static_cast<float>(sums[row]);
    }
  }
}

void cumsum_rows(const float* x, float* out, std::size_t rows, std::size_t count) {
  std::size_t row = 0;
  for (; row + kTile <= rows; row += kTile) {
    cumsum_of_eight(x + row * count, out + row * count, count);
  }
  for (; row < rows; ++row) {
    double sum = 0.0;
    for (std::size_t i = row * count; i < (row + 1) * count; ++i) {
      sum += static_cast<double>(x[i]);
      out[i] = static_cast<float>(sum);
    }
  }
}

void cumsum_columns(const float* __restrict x, const ColumnBlock& block, float* __restrict out) {
  double sums[kColumnsTogether];
  std::fill_n(sums, block.columns, 0.0);
  for (std::size_t row = 0; row < block.rows; ++row) {
    const float* __restrict from = x + row * block.stride;
    float* __restrict to = out + row * block.stride;
    for (std::size_t i = 0; i < block.columns; ++i) {
      sums[i] += static_cast<double>(from[i]);
      to[i] = static_cast<float>(sums[i]);
    }
  }
}

// A byte counts up to 255, the maximum number of bools counted in bytes.
constexpr std::size_t kByteMost = 255;

std::int64_t count_in_row(const std::uint8_t* __restrict x, std::size_t count) {
  std::int64_t total = 0;
  std::size_t i = 0;
  while (i + kVectorBytes <= count) {
    std::uint8_t counts[kVectorBytes] = {};
    const std::size_t steps = std::min(kByteMost, (count - i) / kVectorBytes);
    for (std::size_t step = 0; step < steps; ++step, i += kVectorBytes) {
      for (std::size_t place = 0; place < kVectorBytes; ++place) {
        counts[place] = static_cast<std::uint8_t>(counts[place] + (x[i + place] != 0 ? 1 : 0));
      }
    }
    for (const std::uint8_t one : counts) {
      total += one;
    }
  }
  for (; i < count; ++i) {
    total += x[i] != 0 ? 1 : 0;
  }
  return total;
}

void count_in_columns(const std::uint8_t* __restrict x, const ColumnBlock& block,
                      std::int64_t* __restrict out) {
  std::fill_n(out, block.columns, std::int64_t{0});
  for (std::size_t row = 0; row < block.rows;) {
    std::uint8_t counts[kColumnsTogether] = {};
    for (const std::size_t end = std::min(row + kByteMost, block.rows); row < end; ++row) {
      const std::uint8_t* __restrict from = x + row * block.stride;
      for (std::size_t i = 0; i < block.columns; ++i) {
        counts[i] = static_cast<std::uint8_t>(counts[i] + (from[i] != 0 ? 1 : 0));
      }
    }
    for (std::size_t i = 0; i < block.columns; ++i) {
      out[i] += counts[i];
    }
  }
}

// Reads eight bools as one integer, and turns each byte into the count of trues up to it.
void running_count_of_row(const std::uint8_t* __restrict x, std::int64_t* __restrict out,
                          std::size_t count) {
  constexpr std::uint64_t kOnes = 0x0101010101010101U;
  typedef std::uint64_t Sums __attribute__((vector_size(64)));
  constexpr Sums kShifts = {0, 8, 16, 24, 32, 40, 48, 56};
  std::int64_t running = 0;
  std::size_t i = 0;
  for (; i + 8 <= count && std::endian::native == std::endian::little; i += 8) {
    std::uint64_t bools;
    std::memcpy(&bools, x + i, sizeof bools);
    bools = ((((bools & 0x7F * kOnes) + 0x7F * kOnes) | bools) >> 7 & kOnes) * kOnes;
    const Sums sums = ((Sums{} + bools) >> kShifts & 0xFF) + static_cast<std::uint64_t>(running);
    std::memcpy(out + i, &sums, sizeof sums);
    running += static_cast<std::int64_t>(bools >> 56);
  }
  for (; i < count; ++i) {
    running += x[i] != 0 ? 1 : 0;
    out[i] = running;
  }
}

void running_count_of_columns(const std::uint8_t* __restrict x, const ColumnBlock& block,
                              std::int64_t* __restrict out) {
  std::int64_t sums[kColumnsTogether];
  std::fill_n(sums, block.columns, std::int64_t{0});
  for (std::size_t row = 0; row < block.rows; ++row) {
    const std::uint8_t* __restrict from = x + row * block.stride;
    std::int64_t* __restrict to = out + row * block.stride;
    for (std::size_t i = 0; i < block.columns; ++i) {
      sums[i] += from[i] != 0 ? 1 : 0;
      to[i] = sums[i];
    }
  }
}

// Index of the first number for which `is_wanted` holds; one must exist.
template <class Wanted>
std::size_t first_place(const float* x, std::size_t count, Wanted is_wanted) {
  constexpr std::size_t kStep = 64;
  std::size_t i = 0;
  for (std::int32_t is_found = 0; i + kStep <= count; i += kStep) {
    for (std::size_t at = i; at < i + kStep; ++at) {
      is_found |= static_cast<std::int32_t>(is_wanted(x[at]));
    }
    if (is_found != 0) {
      break;
    }
  }
  while (!is_wanted(x[i])) {
    ++i;
  }
  return i;
}

// Only the block that has the extreme number is searched for its index.
template <class Ordered>
std::size_t place_in_row(const float* x, std::size_t count) {
  constexpr std::size_t kBlock = 1024;
  float best = Ordered::kStart;
  std::size_t block = 0;
  for (std::size_t start = 0; start < count; start += kBlock) {
    const std::size_t size = std::min(kBlock, count - start);
    const float extreme = extreme_of_row<Ordered>(x + start, size);
    if (extreme != extreme) {
      return start + first_place(x + start, size, [](float one) { return one != one; });
    }
    if (Ordered::of(best, extreme) != best) {
      best = extreme;
      block = start;
    }
  }
  return block + first_place(x + block, std::min(kBlock, count - block),
                             [best](float one) { return one == best; });
}

template <class Ordered>
void places_in_columns(const float* __restrict x, const ColumnBlock& block,
                       std::int64_t* __restrict out) {
  float best[kColumnsTogether];
  std::int32_t places[kColumnsTogether];
  std::copy_n(x, block.columns, best);
  std::fill_n(places, block.columns, 0);
  for (std::size_t row = 1; row < block.rows; ++row) {
    const float* __restrict from = x + row * block.stride;
    const auto place = static_cast<std::int32_t>(row);
    for (std::size_t i = 0; i < block.columns; ++i) {
      const float one = from[i], other = best[i];
      // The first NaN stays.
      const bool is_better = (Ordered::of(other, one) != other || one != one) & (other == other);
      best[i] = is_better ? one : other;
      places[i] = is_better ? place : places[i];
    }
  }
  std::copy_n(places, block.columns, out);
}

// A flag as wide as a number, so that vectors of both have the same number of lanes.
template <class T>
using FlagOf = std::conditional_t<sizeof(T) == 1, std::uint8_t, std::uint32_t>;

template <bool kZero, class T>
inline FlagOf<T> is_sought(T x) {
  return (x == 0) == kZero ? 1 : 0;
}

template <class T, bool kZero>
bool has_in_row(const T* x, std::size_t count) {
  constexpr std::size_t kBlock = 1024;  // a search stops after the block that has one
  for (std::size_t start = 0; start < count; start += kBlock) {
    const std::size_t end = std::min(start + kBlock, count);
    FlagOf<T> is_found = 0;
    for (std::size_t i = start; i < end; ++i) {
      is_found |= is_sought<kZero>(x[i]);
    }
    if (is_found != 0) {
      return true;
    }
  }
  return false;
}

template <class T, bool kZero>
void has_in_columns(const T* __restrict x, const ColumnBlock& block, std::uint8_t* __restrict out) {
  FlagOf<T> is_found[kColumnsTogether];
  std::fill_n(is_found, block.columns, FlagOf<T>{0});
  for (std::size_t row = 0; row < block.rows; ++row) {
    const T* __restrict from = x + row * block.stride;
    for (std::size_t i = 0; i < block.columns; ++i) {
      is_found[i] |= is_sought<kZero>(from[i]);
    }
  }
  for (std::size_t i = 0; i < block.columns; ++i) {
    out[i] = is_found[i] != 0 ? 1 : 0;
  }
}

// Loads one vector of float64 from float32 numbers.
inline Vector<double> load_wide(const float* from) {
  typedef float Narrow __attribute__((vector_size(kVectorBytes / 2)));
  Narrow value;
  std::memcpy(&value, from, sizeof value);
  return __builtin_convertvector(value, Vector<double>);
}

// Sums in float64 of the numbers minus `shift`. Where the shift is one of the numbers, its distance
// from the mean is at most sqrt(count) times the standard deviation, so the later subtraction loses
// no more digits than count has.
Spread spread_of_rows(const float* x, float shift, const ColumnBlock& block) {
  constexpr std::size_t kWidth = kLanes<double>;
  constexpr std::size_t kVectors = kPlaces / kWidth;
  const auto from = static_cast<double>(shift);
  Vector<double> sums_of[kVectors] = {}, squares_of[kVectors] = {};
  double rests[2][kPlaces] = {};
  for (std::size_t row = 0; row < block.rows; ++row) {
    const float* numbers = x + row * block.stride;
    std::size_t i = 0;
    for (; i + kPlaces <= block.columns; i += kPlaces) {
      for (std::size_t at = 0; at < kVectors; ++at) {
        const Vector<double> left = load_wide(numbers + i + at * kWidth) - from;
        sums_of[at] += left;
        squares_of[at] += left * left;
      }
    }
    for (std::size_t place = 0; i < block.columns; ++i, ++place) {
      const double left = static_cast<double>(numbers[i]) - from;
      rests[0][place] += left;
      rests[1][place] += left * left;
    }
  }
  double sums[kPlaces], squares[kPlaces];
  for (std::size_t at = 0; at < kVectors; ++at) {
    store(sums + at * kWidth, sums_of[at]);
    store(squares + at * kWidth, squares_of[at]);
  }
  for (std::size_t place = 0; place < kPlaces; ++place) {
    sums[place] += rests[0][place];
    squares[place] += rests[1][place];
  }
  const auto add = [](double one, double other) { return one + other; };
  return {combined(sums, add), combined(squares, add)};
}

// Sums of each column minus its first number; four rows at a time.
void spread_of_columns(const float* __restrict x, const ColumnBlock& block,
                       Spread* __restrict out) {
  double from[kColumnsTogether], sums[kColumnsTogether], squares[kColumnsTogether];
  std::copy_n(x, block.columns, from);
  std::fill_n(sums, block.columns, 0.0);
  std::fill_n(squares, block.columns, 0.0);
  std::size_t row = 0;
  for (; row + 4 <= block.rows; row += 4) {
    const float* __restrict at = x + row * block.stride;
    for (std::size_t i = 0; i < block.columns; ++i) {
      const double one = static_cast<double>(at[i]) - from[i];
      const double two = static_cast<double>(at[i + block.stride]) - from[i];
      const double three = static_cast<double>(at[i + 2 * block.stride]) - from[i];
      const double four = static_cast<double>(at[i + 3 * block.stride]) - from[i];
      sums[i] += (one + two) + (three + four);
      squares[i] += (one * one + two * two) + (three * three + four * four);
    }
  }
  for (; row < block.rows; ++row) {
    for (std::size_t i = 0; i < block.columns; ++i) {
      const double left = static_cast<double>(x[row * block.stride + i]) - from[i];
      sums[i] += left;
      squares[i] += left * left;
    }
  }
  for (std::size_t i = 0; i < block.columns; ++i) {
    out[i] = {sums[i], squares[i]};
  }
}

}  // namespace
}  // namespace gt
