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

template <class T>
using Tile = Vector<T>[kTileRows][kTileVectors];

template <class T>
inline void write_tile(const Tile<T>& sums, T* tile, std::int64_t ld, bool add) {
  for (int row = 0; row < kTileRows; ++row) {
    for (int v = 0; v < kTileVectors; ++v) {
      T* to = tile + row * ld + v * kLanes<T>;
      store(to, add ? load(to) + sums[row][v] : sums[row][v]);
    }
  }
}

template <class T>
void multiply_panels(std::int64_t depth, const void* a_panel, const void* b_panel, T* tile,
                     std::int64_t ld, bool add) {
  const T* a = static_cast<const T*>(a_panel);
  const T* b = static_cast<const T*>(b_panel);
  Tile<T> sums = {};
  for (std::int64_t step = 0; step < depth; ++step) {
    Vector<T> right[kTileVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      right[v] = load(b + v * kLanes<T>);
    }
#pragma GCC unroll 16
    for (int row = 0; row < kTileRows; ++row) {
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        sums[row][v] += a[row] * right[v];
      }
    }
    a += kTileRows;
    b += kTileColumns<T>;
  }
  write_tile<T>(sums, tile, ld, add);
}

}  // namespace
}  // namespace gt
