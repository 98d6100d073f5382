// The product of two packed panels, held in registers. Included by the files of one instruction set
// only; nothing here may have external linkage.
#pragma once

#include <cstdint>

#include "cpu/vector.h"

namespace gt {
namespace {

#if defined(__AVX512F__)
constexpr int kTileRows = 12;  // 24 of 32 registers hold sums
constexpr int kTileVectors = 2;
#elif defined(__AVX2__)
constexpr int kTileRows = 4;  // 12 of 16
constexpr int kTileVectors = 3;
#else
constexpr int kTileRows = 4;  // 8 of 16
constexpr int kTileVectors = 2;
#endif

template <class T>
constexpr int kTileColumns = kTileVectors * kLanes<T>;

// Loops must be unrolled fully: an array indexed by a variable is kept in memory.
template <class T, int kRows, int kVectors>
inline void write_tile(const Vector<T> (&sums)[kRows][kVectors], T* tile, std::int64_t ld,
                       bool add) {
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      T* to = tile + row * ld + v * kLanes<T>;
      store(to, add ? load(to) + sums[row][v] : sums[row][v]);
    }
  }
}

// tile[kRows][kVectors of lanes] (+)= a * b, with `ld` numbers from row to row of the tile; panels
// are as wide as a full tile.
template <class T, int kRows, int kVectors>
inline void multiply_tile(std::int64_t depth, const T* a, const T* b, T* tile, std::int64_t ld,
                          bool add) {
  Vector<T> sums[kRows][kVectors] = {};
  for (std::int64_t step = 0; step < depth; ++step) {
    Vector<T> right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      right[v] = load(b + v * kLanes<T>);
    }
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sums[row][v] += a[row] * right[v];
      }
    }
    a += kTileRows;
    b += kTileColumns<T>;
  }
  write_tile<T, kRows, kVectors>(sums, tile, ld, add);
}

// Chooses the smallest tile that holds `some_rows` and `some_columns`, in steps of 4 rows and of
// one vector.
template <class T, int kRows = kTileRows, int kVectors = kTileVectors>
void multiply_panels(std::int64_t depth, int some_rows, int some_columns, const void* a_panel,
                     const void* b_panel, T* tile, std::int64_t ld, bool add) {
  if constexpr (kRows > 4) {
    if (some_rows <= kRows - 4) {
      return multiply_panels<T, kRows - 4, kVectors>(depth, some_rows, some_columns, a_panel,
                                                     b_panel, tile, ld, add);
    }
  }
  if constexpr (kVectors > 1) {
    if (some_columns <= (kVectors - 1) * kLanes<T>) {
      return multiply_panels<T, kRows, kVectors - 1>(depth, some_rows, some_columns, a_panel,
                                                     b_panel, tile, ld, add);
    }
  }
  multiply_tile<T, kRows, kVectors>(depth, static_cast<const T*>(a_panel),
                                    static_cast<const T*>(b_panel), tile, ld, add);
}

}  // namespace
}  // namespace gt
