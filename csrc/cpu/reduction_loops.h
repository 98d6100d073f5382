// Sums, maxima and minima of rows and of columns: loops of ArrayPath in a form that the compiler
// vectorises. Included by array_loops.h alone; nothing here may have external linkage.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "cpu/array_path.h"
#include "cpu/vector.h"

namespace gt {
namespace {

constexpr std::size_t kPlaces = 16;

// Combines 16 accumulators in pairs: a chain of 16 additions would take longer than a short row.
template <std::size_t kCount = kPlaces, class T, class Combine>
inline T combined(const T* places, Combine combine) {
  if constexpr (kCount == 1) {
    return *places;
  } else {
    return combine(combined<kCount / 2>(places, combine),
                   combined<kCount / 2>(places + kCount / 2, combine));
  }
}

// Sums in 16 accumulators, which are then combined: one order for every instruction set.
template <class Term>
inline float sum_of(std::size_t count, Term term) {
  float places[kPlaces] = {};
  std::size_t i = 0;
  for (; i + kPlaces <= count; i += kPlaces) {
    for (std::size_t place = 0; place < kPlaces; ++place) {
      places[place] += term(i + place);
    }
  }
  for (std::size_t place = 0; i < count; ++i, ++place) {
    places[place] += term(i);
  }
  return combined(places, [](float one, float other) { return one + other; });
}

// The larger of two numbers, or of two vectors by lane; `one` where `other` is NaN.
struct Larger {
  static constexpr float kStart = -std::numeric_limits<float>::infinity();
  template <class T>
  static T of(T one, T other) {
    return other > one ? other : one;
  }
};

struct Smaller {
  static constexpr float kStart = std::numeric_limits<float>::infinity();
  template <class T>
  static T of(T one, T other) {
    return other < one ? other : one;
  }
};

// The largest number that is not NaN.
inline float largest_of(const float* x, std::size_t count) {
  float places[kPlaces];
  std::fill_n(places, kPlaces, Larger::kStart);
  std::size_t i = 0;
  for (; i + kPlaces <= count; i += kPlaces) {
    for (std::size_t place = 0; place < kPlaces; ++place) {
      places[place] = Larger::of(places[place], x[i + place]);
    }
  }
  for (std::size_t place = 0; i < count; ++i, ++place) {
    places[place] = Larger::of(places[place], x[i]);
  }
  return combined(places, Larger::of<float>);
}

struct Sum {
  static constexpr float kStart = 0.0F;
  static float of(float one, float other) { return one + other; }
};

// Larger or Smaller, except that NaN wins over every number, as in PyTorch.
template <class Ordered>
struct Extreme {
  static constexpr float kStart = Ordered::kStart;
  static float of(float one, float other) {
    const float ordered = Ordered::of(one, other);
    return other == other ? ordered : other;
  }
};

// Number of elements in one float32 sum of a long row; these sums are added in float64. One float32
// sum of a million would lose five of its digits.
constexpr std::size_t kRowBlock = 2048;

template <class Term>
inline double long_sum_of(std::size_t count, Term term) {
  double total = 0.0;
  for (std::size_t start = 0; start < count; start += kRowBlock) {
    total += sum_of(std::min(kRowBlock, count - start),
                    [term, start](std::size_t i) { return term(start + i); });
  }
  return total;
}

float sum_of_row(const float* x, std::size_t count) {
  return static_cast<float>(long_sum_of(count, [x](std::size_t i) { return x[i]; }));
}

template <class Ordered>
inline float extreme_of_vector(Vector<float> value) {
  float places[kLanes<float>];
  store(places, value);
  return combined<kLanes<float>>(places, Ordered::template of<float>);
}

inline bool any(Vector<std::int32_t> mask) {
  std::int64_t parts[kLanes<std::int64_t>], found = 0;
  std::memcpy(parts, &mask, sizeof mask);
  for (const std::int64_t part : parts) {
    found |= part;
  }
  return found != 0;
}

// Compares four vectors at a time, so that no comparison waits for the previous one. The last
// vectors may overlap earlier ones. Order does not change the result, so vectors have the width of
// the instruction set.
template <class Ordered>
float extreme_of_row(const float* x, std::size_t count) {
  constexpr std::size_t kWidth = kLanes<float>;
  Vector<float> found[4];
  std::fill_n(found, 4, splat(Ordered::kStart));
  Vector<std::int32_t> unordered{};
  const auto take = [&](std::size_t at, std::size_t to) {
    const Vector<float> value = load(x + at);
    found[to] = Ordered::of(found[to], value);
    unordered |= value != value;
  };
  std::size_t i = 0;
  for (; i + 4 * kWidth <= count; i += 4 * kWidth) {
    for (std::size_t part = 0; part < 4; ++part) {
      take(i + part * kWidth, part);
    }
  }
  for (; i + kWidth <= count; i += kWidth) {
    take(i, 0);
  }
  if (count >= kWidth) {
    take(count - kWidth, 1);
    i = count;
  }
  float extreme = extreme_of_vector<Ordered>(
      Ordered::of(Ordered::of(found[0], found[1]), Ordered::of(found[2], found[3])));
  bool has_nan = any(unordered);
  for (; i < count; ++i) {
    extreme = Ordered::of(extreme, x[i]);
    has_nan |= x[i] != x[i];
  }
  return has_nan ? std::numeric_limits<float>::quiet_NaN() : extreme;
}

// Columns whose numbers stay in the first-level cache while rows are read, and rows that are
// reduced before they are combined with the rows above: one chain over all rows would lose digits.
constexpr std::size_t kBlockColumns = 1024;
constexpr std::size_t kBlockRows = 256;

// block = the reduction of `rows` rows, four at a time, so that `block` is read once for four rows.
template <class Reduction>
void reduce_block(const float* __restrict x, std::size_t rows, std::size_t stride,
                  std::size_t columns, float* __restrict block) {
  std::fill_n(block, columns, Reduction::kStart);
  std::size_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const float* at = x + row * stride;
    for (std::size_t i = 0; i < columns; ++i) {
      const float upper = Reduction::of(at[i], at[i + stride]);
      const float lower = Reduction::of(at[i + 2 * stride], at[i + 3 * stride]);
      block[i] = Reduction::of(block[i], Reduction::of(upper, lower));
    }
  }
  for (; row < rows; ++row) {
    const float* at = x + row * stride;
    for (std::size_t i = 0; i < columns; ++i) {
      block[i] = Reduction::of(block[i], at[i]);
    }
  }
}

template <class Reduction>
void reduce_columns(const float* x, std::size_t rows, std::size_t columns, float* out) {
  std::fill_n(out, columns, Reduction::kStart);
  for (std::size_t start = 0; start < columns; start += kBlockColumns) {
    const std::size_t width = std::min(kBlockColumns, columns - start);
    for (std::size_t row = 0; row < rows; row += kBlockRows) {
      float block[kBlockColumns];
      reduce_block<Reduction>(x + row * columns + start, std::min(kBlockRows, rows - row), columns,
                              width, block);
      for (std::size_t i = 0; i < width; ++i) {
        out[start + i] = Reduction::of(out[start + i], block[i]);
      }
    }
  }
}

}  // namespace
}  // namespace gt
