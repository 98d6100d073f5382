// Comparisons of integers, in a form that the compiler vectorises. Included by array_loops.h alone;
// nothing here may have external linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/array_path.h"

namespace gt {
namespace {

template <class T, class Holds>
void compare_with(const T* __restrict x, const T* __restrict y, bool is_one,
                  std::uint8_t* __restrict out, std::size_t count) {
  if (is_one) {
    const T one = *y;
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = Holds::of(x[i], one) ? 1 : 0;
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = Holds::of(x[i], y[i]) ? 1 : 0;
  }
}

struct IsEqual {
  template <class T>
  static bool of(T x, T y) {
    return x == y;
  }
};
struct IsOther {
  template <class T>
  static bool of(T x, T y) {
    return x != y;
  }
};
struct IsBelow {
  template <class T>
  static bool of(T x, T y) {
    return x < y;
  }
};
struct IsAtMost {
  template <class T>
  static bool of(T x, T y) {
    return x <= y;
  }
};
struct IsAbove {
  template <class T>
  static bool of(T x, T y) {
    return x > y;
  }
};
struct IsAtLeast {
  template <class T>
  static bool of(T x, T y) {
    return x >= y;
  }
};

// In the order of Comparison.
template <class T>
constexpr Comparisons<T> comparisons_of() {
  return {{compare_with<T, IsEqual>, compare_with<T, IsOther>, compare_with<T, IsBelow>,
           compare_with<T, IsAtMost>, compare_with<T, IsAbove>, compare_with<T, IsAtLeast>}};
}

}  // namespace
}  // namespace gt
