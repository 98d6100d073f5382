// Fills panels from strided matrices. Included by the files of one instruction set only; nothing
// here may have external linkage.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/matmul/matmul_path.h"
#include "cpu/matmul/tile.h"
#include "cpu/vector.h"

namespace gt {
namespace {

// Stored number types and their values, apart from core/element.h, because inline functions of this
// file must not be shared with other instruction sets.
struct Bfloat16 {
  std::uint16_t bits;
};

template <class T>
inline T value_of(T number) {
  return number;
}

template <class T>
inline T value_of(Bfloat16 number) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(number.bits) << 16);
}

// Numbers of each row in a vector: the number of steps transposed at a time.
constexpr int kTurned = kLanes<float>;
typedef float Four __attribute__((vector_size(16)));

// Interleaves, within each group of four lanes, the first two numbers of both vectors, or the last
// two, by single numbers or by pairs.
template <bool kPairs, bool kLast>
inline Vector<float> interleave(Vector<float> first, Vector<float> second) {
  Vector<std::int32_t> places;
  for (int place = 0; place < kTurned; ++place) {
    const int at = place % 4;
    const bool is_second = (kPairs ? at / 2 : at % 2) != 0;
    const int from = (kPairs ? at % 2 : at / 2) + (kLast ? 2 : 0);
    places[place] = place - at + from + (is_second ? kTurned : 0);
  }
  return __builtin_shuffle(first, second, places);
}

// Transposes four rows of kTurned steps each, so that the four numbers of a step are adjacent in
// the panel.
inline void turn_four(const float* from, std::int64_t across, float* to, int width) {
  const Vector<float> row[4] = {load(from), load(from + across), load(from + 2 * across),
                                load(from + 3 * across)};
  const Vector<float> low01 = interleave<false, false>(row[0], row[1]);
  const Vector<float> high01 = interleave<false, true>(row[0], row[1]);
  const Vector<float> low23 = interleave<false, false>(row[2], row[3]);
  const Vector<float> high23 = interleave<false, true>(row[2], row[3]);
  const Vector<float> step[4] = {
      interleave<true, false>(low01, low23), interleave<true, true>(low01, low23),
      interleave<true, false>(high01, high23), interleave<true, true>(high01, high23)};
#pragma GCC unroll 16
  for (int place = 0; place < kTurned; ++place) {
    Four four;
    std::memcpy(&four, reinterpret_cast<const char*>(&step[place % 4]) + place / 4 * sizeof(Four),
                sizeof(Four));
    std::memcpy(to + place * width, &four, sizeof(Four));
  }
}

template <class T, class Number>
void pack_steps(const Number* from, const PanelSource& source, int width, int count,
                std::int64_t begin, std::int64_t depth, T* panel) {
  for (std::int64_t step = begin; step < depth; ++step) {
    const Number* at = from + step * source.along;
    T* to = panel + step * width;
    if (source.across == 1) {
      for (int i = 0; i < count; ++i) {
        to[i] = value_of<T>(at[i]);
      }
    } else {
      for (int i = 0; i < count; ++i) {
        to[i] = value_of<T>(at[i * source.across]);
      }
    }
    for (int i = count; i < width; ++i) {
      to[i] = T{};
    }
  }
}

constexpr int kLineFloats = 16;
// Distance, in steps, of prefetching: each step is in another page of memory.
constexpr std::int64_t kFetchSteps = 16;

// Copies a panel whose kWidth numbers of a step are adjacent in memory.
template <int kWidth>
void copy_steps(const float* from, std::int64_t along, std::int64_t depth, float* panel) {
  for (std::int64_t step = 0; step < depth; ++step) {
    const float* later = from + std::min(depth - step - 1, kFetchSteps) * along;
#pragma GCC unroll 4
    for (int i = 0; i < kWidth; i += kLineFloats) {
      __builtin_prefetch(later + i);
    }
    std::memcpy(panel, from, kWidth * sizeof(float));
    from += along;
    panel += kWidth;
  }
}

// Packs a panel with a multiple of four rows whose rows, or whose steps, are contiguous. Returns
// the steps done.
inline std::int64_t pack_fours(const float* from, const PanelSource& source, int width,
                               std::int64_t depth, float* panel) {
  if (source.across == 1 && width == kTileRows) {
    copy_steps<kTileRows>(from, source.along, depth, panel);
    return depth;
  }
  if (source.across == 1 && width == kTileColumns<float>) {
    copy_steps<kTileColumns<float>>(from, source.along, depth, panel);
    return depth;
  }
  std::int64_t done = 0;
  for (; source.along == 1 && done + kTurned <= depth; done += kTurned) {
    for (int i = 0; i < width; i += 4) {
      turn_four(from + i * source.across + done, source.across, panel + done * width + i, width);
    }
  }
  return done;
}

template <class T, class Number>
void pack_numbers(const PanelSource& source, int width, int count, std::int64_t depth, T* panel) {
  const auto* from = static_cast<const Number*>(source.data);
  std::int64_t done = 0;
  if constexpr (sizeof(T) == sizeof(float) && sizeof(Number) == sizeof(float)) {
    if (count == width && width % 4 == 0) {
      done = pack_fours(from, source, width, depth, panel);
    }
  }
  pack_steps<T, Number>(from, source, width, count, done, depth, panel);
}

template <class T>
void pack_panel(const PanelSource& source, int width, int count, std::int64_t depth, void* panel) {
  auto* to = static_cast<T*>(panel);
  if (source.element == Element::kBfloat16) {
    pack_numbers<T, Bfloat16>(source, width, count, depth, to);
  } else {
    pack_numbers<T, T>(source, width, count, depth, to);
  }
}

}  // namespace
}  // namespace gt
