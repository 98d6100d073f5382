// Products of attention on operands read in place. Included by the files of one instruction set
// only; nothing here may have external linkage.
//
// A sum begins at zero in a register, runs over the depth in order, and is then stored or added:
// its bits depend neither on the tile that computes it nor on the operands' addresses.
#pragma once

#include <cstdint>

#include "cpu/vector.h"

namespace gt {
namespace {

#if defined(__AVX512F__)
constexpr int kUp = 8;  // rows in a register tile
constexpr int kAcross = 3;
#elif defined(__AVX2__)
constexpr int kUp = 4;
constexpr int kAcross = 3;
#else
constexpr int kUp = 4;
constexpr int kAcross = 2;
#endif
static_assert(kLanes<float> % kUp == 0);

constexpr std::int64_t up_to(std::int64_t count, std::int64_t step) {
  return (count + step - 1) / step * step;
}

inline std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// Row r begins at data + r * row; its elements are contiguous.
struct Matrix {
  const float* data;
  std::int64_t row;
};

// Storage of the left operand [rows, depth]: as it is, or as its transpose, whose rows have the
// number of rows of the product, rounded up to kUp.
enum class Stored { kAsIs, kTransposed };

// out[rows][kVectors of lanes] (+)= a * b, for at most kRows rows.
template <int kRows, int kVectors, Stored kStored>
[[gnu::noinline]] void multiply_rows(std::int64_t rows, std::int64_t depth, const Matrix& a,
                                     const Matrix& b, float* out, std::int64_t ld, bool add) {
  Vector<float> sums[kRows][kVectors] = {};
  const float* left[kRows];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    left[row] = kStored == Stored::kAsIs ? a.data + least(row, rows - 1) * a.row : a.data + row;
  }
  const std::int64_t along = kStored == Stored::kAsIs ? 1 : a.row;
  const float* right = b.data;
  for (std::int64_t step = 0; step < depth; ++step, right += b.row) {
    Vector<float> across[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      across[v] = load(right + v * kLanes<float>);
    }
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const float value = left[row][step * along];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sums[row][v] += value * across[v];
      }
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    if (row < rows) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        float* to = out + row * ld + v * kLanes<float>;
        store(to, add ? load(to) + sums[row][v] : sums[row][v]);
      }
    }
  }
}

// Multiplies any number of rows.
template <int kVectors, Stored kStored>
inline void multiply(std::int64_t rows, std::int64_t depth, Matrix a, const Matrix& b, float* out,
                     std::int64_t ld, bool add) {
  for (std::int64_t row = 0; row < rows; row += kUp) {
    const std::int64_t left = rows - row;
    if (left <= kUp / 2) {
      multiply_rows<kUp / 2, kVectors, kStored>(left, depth, a, b, out + row * ld, ld, add);
    } else {
      multiply_rows<kUp, kVectors, kStored>(left, depth, a, b, out + row * ld, ld, add);
    }
    a.data += kUp * (kStored == Stored::kAsIs ? a.row : 1);
  }
}

// out[rows][columns] += a * b, where columns are whole vectors.
template <Stored kStored>
inline void multiply_wide(std::int64_t rows, std::int64_t columns, std::int64_t depth,
                          const Matrix& a, Matrix b, float* out, std::int64_t ld) {
  std::int64_t vectors = columns / kLanes<float>;
  while (vectors > 0) {
    std::int64_t taken = least(vectors, kAcross);
    if (vectors == 4 && kAcross == 3) {
      taken = 2;  // four vectors left are taken as 2 and 2, not 3 and 1
    }
    if (taken == 1) {
      multiply<1, kStored>(rows, depth, a, b, out, ld, true);
    } else if (taken == 2) {
      multiply<2, kStored>(rows, depth, a, b, out, ld, true);
    } else {
      multiply<kAcross, kStored>(rows, depth, a, b, out, ld, true);
    }
    vectors -= taken;
    b.data += taken * kLanes<float>;
    out += taken * kLanes<float>;
  }
}

}  // namespace
}  // namespace gt
