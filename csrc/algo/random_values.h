// Conversion of random words to values: the one definition behind every path.
// gt/worker/reference/random_numbers.py says the same in numpy, docs/decisions/random.md says why.
// Only + - * / sqrt and integer operations, each rounded once, in the order written: no libm, no
// fused multiply-add, so that all machines give the same bits.
//
// Unnamed namespace on purpose, see algo/philox.h. No standard library functions, for the same
// reason.
#pragma once

#include <cstdint>

#include "algo/host_device.h"

namespace gt {

// uniform: value = min(low + u * span, below). T is any element type; 16-bit types use float.
template <class T>
struct UniformRange {
  T low;
  T span;
  T below;  // the largest value under high (low itself where low equals high)
};

template <class T>
struct NormalShape {
  T mean;
  T std;
};

struct IntegerRange {
  std::int64_t low;
  std::uint64_t span;  // high - low, at least 1
};

namespace {

// c[0] * x^n + ... + c[n], as ((c[0] * x + c[1]) * x + ...).
template <class T>
GT_HOST_DEVICE constexpr T horner(T, T sum) {
  return sum;
}
template <class T, class... Rest>
GT_HOST_DEVICE constexpr T horner(T x, T sum, T next, Rest... rest) {
  return horner(x, sum * x + next, rest...);
}

// [0, 1) in steps of 2^-24.
GT_HOST_DEVICE inline float unit_f32(std::uint32_t word) {
  return static_cast<float>(static_cast<std::int32_t>(word >> 8)) * 0x1p-24F;
}

// The bits of 2^52: or-ing an integer below 2^52 into them gives 2^52 + integer, exactly. AVX2 has
// no conversion from 64-bit integers, so that all paths convert in this way.
constexpr std::uint64_t kTwo52Bits = 0x4330000000000000U;

GT_HOST_DEVICE inline double two52_plus(std::uint64_t integer) {
  return __builtin_bit_cast(double, integer | kTwo52Bits);
}

// [0, 1) in steps of 2^-53: 32 high bits and 21 low bits, added exactly.
GT_HOST_DEVICE inline double unit_f64(std::uint64_t words) {
  const double high = two52_plus(words >> 32) - 0x1p52;
  const double low = two52_plus((words >> 11) & 0x1FFFFFU) - 0x1p52;
  return (high * 0x1p21 + low) * 0x1p-53;
}

template <class T>
GT_HOST_DEVICE inline T uniform_value(T unit, const UniformRange<T>& range) {
  const T value = range.low + unit * range.span;
  return value < range.below ? value : range.below;
}

// floor(words * span / 2^64) + low: the high half of a 64 x 64-bit product, from four 32-bit ones.
GT_HOST_DEVICE inline std::int64_t integer_value(std::uint64_t words, const IntegerRange& range) {
  constexpr std::uint64_t kLow = 0xFFFFFFFFU;
  const std::uint64_t a0 = words & kLow;
  const std::uint64_t a1 = words >> 32;
  const std::uint64_t b0 = range.span & kLow;
  const std::uint64_t b1 = range.span >> 32;
  const std::uint64_t p10 = a1 * b0;
  const std::uint64_t middle = a0 * b1 + (p10 & kLow) + ((a0 * b0) >> 32);
  const std::uint64_t high = a1 * b1 + (p10 >> 32) + (middle >> 32);
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(range.low) + high);
}

// Two independent standard normals by Box and Muller: radius * (cos, sin).
template <class T>
struct NormalPair {
  T cosine;
  T sine;
};

// radius^2 = -2 ln(u) for u = 2^-halvings * mantissa, mantissa within [sqrt(1/2), sqrt(2)):
// ln(mantissa) = 2 atanh(s), s = (mantissa - 1) / (mantissa + 1), |s| < 0.172, by atanh's series.
template <class T, class... Coefficients>
GT_HOST_DEVICE inline T radius_squared(T halvings, T mantissa, Coefficients... atanh_series) {
  const T s = (mantissa - T{1}) / (mantissa + T{1});
  const T series = horner(s * s, atanh_series...);
  return halvings * static_cast<T>(1.3862943611198906) - (T{4} * s) * series;
}

// u = t / 2^31 with t odd, so u is in [2^-31, 1] and |value| <= 6.56.
GT_HOST_DEVICE inline float radius_f32(std::uint32_t word) {
  constexpr std::uint32_t kSqrtHalfBits = 0x3F3504F3U;
  const auto t = static_cast<float>(static_cast<std::int32_t>((word >> 1) | 1U));
  const std::uint32_t shifted =
      __builtin_bit_cast(std::uint32_t, t) + (0x3F800000U - kSqrtHalfBits);
  const auto halvings = static_cast<float>(31 + 127 - static_cast<std::int32_t>(shifted >> 23));
  const auto mantissa = __builtin_bit_cast(float, (shifted & 0x7FFFFFU) + kSqrtHalfBits);
  return rounded_sqrt(radius_squared(halvings, mantissa, static_cast<float>(1.0 / 9),
                                     static_cast<float>(1.0 / 7), static_cast<float>(1.0 / 5),
                                     static_cast<float>(1.0 / 3), 1.0F));
}

// u = (m + 1/2) / 2^52, so u is in (0, 1) and |value| <= 8.58.
GT_HOST_DEVICE inline double radius_f64(std::uint64_t words) {
  constexpr std::uint64_t kSqrtHalfBits = 0x3FE6A09E667F3BCDU;
  const double t = two52_plus(words >> 12) - (0x1p52 - 0.5);
  const std::uint64_t shifted =
      __builtin_bit_cast(std::uint64_t, t) + (0x3FF0000000000000U - kSqrtHalfBits);
  const double halvings = (0x1p52 + 52 + 1023) - two52_plus(shifted >> 52);
  const auto mantissa = __builtin_bit_cast(double, (shifted & 0xFFFFFFFFFFFFFU) + kSqrtHalfBits);
  return rounded_sqrt(radius_squared(halvings, mantissa, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15,
                                     1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1.0));
}

// The angle is quadrant + fraction quarter turns, fraction within [-1/2, 1/2): the two top bits and
// the rest. Taylor series in y = fraction * pi / 2, |y| <= pi / 4; then the quadrant swaps and
// negates.
GT_HOST_DEVICE inline NormalPair<float> normal_pair_f32(std::uint32_t radius_word,
                                                        std::uint32_t angle_word) {
  const float radius = radius_f32(radius_word);
  const float y = static_cast<float>(static_cast<std::int32_t>(angle_word << 2)) *
                  static_cast<float>(1.5707963267948966 * 0x1p-32);
  const float y2 = y * y;
  const float sine =
      y + (y * y2) * horner(y2, static_cast<float>(1.0 / 362880), static_cast<float>(-1.0 / 5040),
                            static_cast<float>(1.0 / 120), static_cast<float>(-1.0 / 6));
  const float cosine = horner(y2, static_cast<float>(1.0 / 40320), static_cast<float>(-1.0 / 720),
                              static_cast<float>(1.0 / 24), -0.5F, 1.0F);
  const std::uint32_t quadrant = angle_word >> 30;
  const bool swapped = (quadrant & 1U) != 0;
  const float first = radius * (swapped ? sine : cosine);
  const float second = radius * (swapped ? cosine : sine);
  const auto first_bits = __builtin_bit_cast(std::uint32_t, first);
  const auto second_bits = __builtin_bit_cast(std::uint32_t, second);
  return {__builtin_bit_cast(float, first_bits ^ (((quadrant + 1U) & 2U) << 30)),
          __builtin_bit_cast(float, second_bits ^ ((quadrant & 2U) << 30))};
}

GT_HOST_DEVICE inline NormalPair<double> normal_pair_f64(std::uint64_t radius_words,
                                                         std::uint64_t angle_words) {
  const double radius = radius_f64(radius_words);
  const double y =
      (two52_plus((angle_words << 2) >> 12) - (0x1p52 + 0x1p51)) * (1.5707963267948966 * 0x1p-52);
  const double y2 = y * y;
  const double sine =
      y + (y * y2) * horner(y2, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
                            1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6);
  const double cosine = horner(y2, 1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600,
                               -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5, 1.0);
  const std::uint64_t quadrant = angle_words >> 62;
  const bool swapped = (quadrant & 1U) != 0;
  const double first = radius * (swapped ? sine : cosine);
  const double second = radius * (swapped ? cosine : sine);
  const auto first_bits = __builtin_bit_cast(std::uint64_t, first);
  const auto second_bits = __builtin_bit_cast(std::uint64_t, second);
  return {__builtin_bit_cast(double, first_bits ^ (((quadrant + 1U) & 2U) << 62)),
          __builtin_bit_cast(double, second_bits ^ ((quadrant & 2U) << 62))};
}

// Bits of the nearest bfloat16, ties to even. The value is a number, not NaN.
GT_HOST_DEVICE inline std::uint16_t bfloat16_bits(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

// Bits of the nearest float16, ties to even. The value is a number, not NaN. After Giesen's
// float_to_half_fast3_rtne: below float16's normal range an addition of 1/2 moves the bits into
// place and rounds them.
GT_HOST_DEVICE inline std::uint16_t float16_bits(float value) {
  constexpr std::uint32_t kInfinityFrom = 0x47800000U;  // 65536
  constexpr std::uint32_t kNormalFrom = 0x38800000U;    // 2^-14
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t size = bits & 0x7FFFFFFFU;
  const std::uint32_t normal = (size - 0x38000000U + 0xFFFU + ((size >> 13) & 1U)) >> 13;
  const std::uint32_t small =
      __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, size) + 0.5F) - 0x3F000000U;
  const std::uint32_t finite = size < kNormalFrom ? small : normal;
  const std::uint32_t rounded = size < kInfinityFrom ? finite : 0x7C00U;
  return static_cast<std::uint16_t>(rounded | ((bits >> 16) & 0x8000U));
}

}  // namespace
}  // namespace gt
