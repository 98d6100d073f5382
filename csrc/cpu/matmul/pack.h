// Fills panels from strided matrices. Included by the files of one instruction set only; nothing
// here may have external linkage.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/matmul/matmul_path.h"
#include "cpu/vector.h"

namespace gt {
namespace {

// Numbers as stored, and their values. Not core/element.h's functions: these stay here.
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

// 4 x 4 floats from rows to columns.
inline void transpose_four(const float* from, std::int64_t across, float* to, int width) {
  typedef float Four __attribute__((vector_size(16)));
  typedef std::int32_t Places __attribute__((vector_size(16)));
  Four row[4];
  for (int i = 0; i < 4; ++i) {
    std::memcpy(&row[i], from + i * across, sizeof(Four));
  }
  const Four low01 = __builtin_shuffle(row[0], row[1], Places{0, 4, 1, 5});
  const Four high01 = __builtin_shuffle(row[0], row[1], Places{2, 6, 3, 7});
  const Four low23 = __builtin_shuffle(row[2], row[3], Places{0, 4, 1, 5});
  const Four high23 = __builtin_shuffle(row[2], row[3], Places{2, 6, 3, 7});
  const Four column[4] = {__builtin_shuffle(low01, low23, Places{0, 1, 4, 5}),
                          __builtin_shuffle(low01, low23, Places{2, 3, 6, 7}),
                          __builtin_shuffle(high01, high23, Places{0, 1, 4, 5}),
                          __builtin_shuffle(high01, high23, Places{2, 3, 6, 7})};
  for (int i = 0; i < 4; ++i) {
    std::memcpy(to + i * width, &column[i], sizeof(Four));
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

template <class T, class Number>
void pack_numbers(const PanelSource& source, int width, int count, std::int64_t depth, T* panel) {
  const auto* from = static_cast<const Number*>(source.data);
  std::int64_t done = 0;
  if constexpr (sizeof(T) == sizeof(float) && sizeof(Number) == sizeof(float)) {
    if (source.along == 1 && count == width && width % 4 == 0) {
      for (; done + 4 <= depth; done += 4) {
        for (int i = 0; i < width; i += 4) {
          transpose_four(from + i * source.across + done, source.across, panel + done * width + i,
                         width);
        }
      }
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
