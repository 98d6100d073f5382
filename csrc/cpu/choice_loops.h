// Choices between two arrays by bools, for elements of any type, in a form that the compiler
// vectorises: by masks and not by branches, which random bools would mispredict. Included by
// array_loops.h alone; nothing here may have external linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/array_path.h"

namespace gt {
namespace {

template <class T>
void choose_into(const ChoiceSides& sides, void* result, std::size_t count) {
  const std::uint8_t* __restrict condition = sides.condition;
  const T* __restrict x = static_cast<const T*>(sides.x);
  const T* __restrict y = static_cast<const T*>(sides.y);
  T* __restrict out = static_cast<T*>(result);
  const T first = *x, second = *y;
  if (sides.x_is_one && sides.y_is_one) {
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = condition[i] != 0 ? first : second;
    }
  } else if (sides.x_is_one) {
    for (std::size_t i = 0; i < count; ++i) {
      const T other = y[i];
      out[i] = condition[i] != 0 ? first : other;
    }
  } else if (sides.y_is_one) {
    for (std::size_t i = 0; i < count; ++i) {
      const T one = x[i];
      out[i] = condition[i] != 0 ? one : second;
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      const T one = x[i], other = y[i];
      out[i] = condition[i] != 0 ? one : other;
    }
  }
}

// Writes `given` over out where the condition equals kWhere; other elements of out stay.
template <class T, bool kWhere>
void choose_over(const std::uint8_t* __restrict condition, const T* __restrict given, bool is_one,
                 T* __restrict out, std::size_t count) {
  if (is_one) {
    const T one = *given;
    for (std::size_t i = 0; i < count; ++i) {
      const T there = out[i];
      out[i] = (condition[i] != 0) == kWhere ? one : there;
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const T one = given[i], there = out[i];
    out[i] = (condition[i] != 0) == kWhere ? one : there;
  }
}

template <class T>
void choose(const ChoiceSides& sides, void* result, std::size_t count) {
  T* out = static_cast<T*>(result);
  if (sides.y == out && !sides.y_is_one) {
    choose_over<T, true>(sides.condition, static_cast<const T*>(sides.x), sides.x_is_one, out,
                         count);
  } else if (sides.x == out && !sides.x_is_one) {
    choose_over<T, false>(sides.condition, static_cast<const T*>(sides.y), sides.y_is_one, out,
                          count);
  } else {
    choose_into<T>(sides, result, count);
  }
}

}  // namespace
}  // namespace gt
