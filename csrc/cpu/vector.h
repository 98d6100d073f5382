// Vectors as wide as the instruction set that a file is compiled for, and functions of them.
// Included by the files of one instruction set only; nothing here may have external linkage.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/element.h"

namespace gt {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kVectorBytes)));
};

template <class T>
using Vector = typename VectorOf<T>::Type;

template <class T>
inline Vector<T> load(const T* from) {
  Vector<T> value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
inline void store(T* to, Vector<T> value) {
  std::memcpy(to, &value, sizeof value);
}

template <class T>
inline Vector<T> splat(T value) {
  return value - Vector<T>{};  // exact for -0 also
}

// Sums the lanes in a fixed order.
template <class T>
inline T lane_sum(Vector<T> value) {
  T parts[kLanes<T>];
  store(parts, value);
  for (int width = kLanes<T> / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) {
      parts[lane] += parts[lane + width];
    }
  }
  return parts[0];
}

// e^x within 2 units in the last place: x = n ln 2 + r with |r| <= ln 2 / 2, then the Taylor
// polynomial of r. 0 below -87.3, where the result would be subnormal; NaN for NaN; infinity on
// overflow.
inline Vector<float> exponential(Vector<float> x) {
  using Int = Vector<std::int32_t>;
  constexpr float kShift = 0x1.8p23F;  // adding it rounds to an integer, which the low bits hold
  const Vector<float> clamped = x > 89.0F ? splat(89.0F) : (x < -87.3F ? splat(-87.3F) : x);
  const Vector<float> shifted = clamped * 1.44269504F + kShift;
  const Vector<float> n = shifted - kShift;
  const Vector<float> r = (clamped - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;
  Vector<float> sum = r * (1.0F / 5040) + (1.0F / 720);
  sum = sum * r + (1.0F / 120);
  sum = sum * r + (1.0F / 24);
  sum = sum * r + (1.0F / 6);
  sum = sum * r + 0.5F;
  sum = sum * r + 1.0F;
  sum = sum * r + 1.0F;
  // Scales by two factors, so that n = 128 does not overflow early.
  const Int exponent = reinterpret_cast<Int>(n >= 128.0F ? n - 1.0F + kShift : shifted);
  Vector<float> result = reinterpret_cast<Vector<float>>((exponent - 0x4B400000 + 127) << 23) * sum;
  result = n >= 128.0F ? result * 2.0F : result;
  result = x < -87.3F ? Vector<float>{} : result;
  return x == x ? result : x;
}

}  // namespace
}  // namespace gt
