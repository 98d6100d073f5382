// exp, tanh, sigmoid, erf and the normal distribution of float32 without branches, so that a loop
// over them is vectorised.
// Each is within 4 units in the last place of the rounded value
// (tests/kernels/test_array_kernels.py).
//
// The polynomials are Chebyshev fits over the stated ranges. Nothing here may have external
// linkage: files of several instruction sets include it.
#pragma once

#include <cmath>
#include <cstdint>

namespace gt {
namespace {

inline float bits_to_float(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline std::uint32_t float_to_bits(float value) { return __builtin_bit_cast(std::uint32_t, value); }

// e^x = 2^power * value, with value = e^r and |r| <= ln(2)/2; NaN gives NaN.
struct ExpParts {
  float value;
  std::int32_t power;
};

inline ExpParts exp_parts_f32(float x) {
  constexpr float kPerLn2 = 1.442695041F;
  constexpr float kLn2High = 0.693359375F;  // its product with a small whole number is exact
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 0x1.8p23F;  // adding it rounds to a whole number in the low bits
  const float shifted = x * kPerLn2 + kRound;
  const float whole = shifted - kRound;
  const float rest = (x - whole * kLn2High) - whole * kLn2Low;
  float poly = 0.001393454324F;
  poly = poly * rest + 0.008363776467F;
  poly = poly * rest + 0.0416664568F;
  poly = poly * rest + 0.1666657336F;
  poly = poly * rest + 0.5000000014F;
  return {poly * rest * rest + rest + 1.0F,
          static_cast<std::int32_t>(float_to_bits(shifted) - float_to_bits(kRound))};
}

// 2^power; 0 for -127.
inline float power_of_two_f32(std::int32_t power) {
  return bits_to_float(static_cast<std::uint32_t>(power + 127) << 23);
}

// Infinity above 88.73, 0 below -103.98.
inline float exp_f32(float x) {
  const ExpParts parts = exp_parts_f32(x < -104.0F ? -104.0F : (x > 89.0F ? 89.0F : x));
  // Two factors: the power goes from -150 to 128, an exponent from -126 to 127.
  const std::int32_t half = parts.power >> 1;
  return parts.value * power_of_two_f32(half) * power_of_two_f32(parts.power - half);
}

// e^x for x up to 88; 0 below -87.7, without subnormal numbers.
inline float exp_of_negative_f32(float x) {
  const ExpParts parts = exp_parts_f32(x < -88.0F ? -88.0F : x);
  return parts.value * power_of_two_f32(parts.power);
}

inline float sigmoid_f32(float x) { return 1.0F / (1.0F + exp_f32(-x)); }

// ln(1 + e^x) for any x, as max(x, 0) + ln(1 + e^-|x|). The logarithm is twice the inverse
// hyperbolic tangent of s = u / (2 + u), with s up to 1/3.
inline float softplus_f32(float x) {
  const float u = exp_f32(-std::fabs(x));
  const float s = u / (2.0F + u);
  const float square = s * s;
  float poly = 1.0F / 15;
  poly = poly * square + 1.0F / 13;
  poly = poly * square + 1.0F / 11;
  poly = poly * square + 1.0F / 9;
  poly = poly * square + 1.0F / 7;
  poly = poly * square + 1.0F / 5;
  poly = poly * square + 1.0F / 3;
  const float near = 2.0F * s + 2.0F * s * square * poly;
  return (x > 0.0F ? x : 0.0F) + near;
}

inline float tanh_f32(float x) {
  const float square = x * x;
  float poly = -0.006104948029F;
  poly = poly * square + 0.02100364124F;
  poly = poly * square + -0.05385249747F;
  poly = poly * square + 0.1333278226F;
  poly = poly * square + -0.333333291F;
  const float small = poly * square * x + x;
  const float size = std::fabs(x);
  const float large = 1.0F - 2.0F / (exp_f32(2.0F * size) + 1.0F);
  return size < 0.625F ? small : std::copysign(large, x);
}

// Below 1, a polynomial of the square; above, 1 - e^(-x^2) times a polynomial of 1 / (1 + 0.4 x).
inline float erf_f32(float x) {
  const float size = std::fabs(x);
  const float square = x * x;
  float near = -9.67359017e-06F;
  near = near * square + 0.0001126825367F;
  near = near * square + -0.0008484396519F;
  near = near * square + 0.00522105341F;
  near = near * square + -0.02686543831F;
  near = near * square + 0.1128378262F;
  near = near * square + -0.3761263848F;
  near = near * square + 1.128379167F;
  const float bounded = size > 4.0F ? 4.0F : size;  // erf(4) is 1 in float32
  const float place = 1.0F / (1.0F + 0.4F * bounded);
  float far = -0.07750094546F;
  far = far * place + 0.1000639798F;
  far = far * place + 0.2335403883F;
  far = far * place + 0.01882004377F;
  far = far * place + 0.2981548892F;
  far = far * place + 0.1965143013F;
  far = far * place + 0.2306662557F;
  far = far * place + -0.0003571130842F;
  const float tail = 1.0F - exp_f32(-bounded * bounded) * far;
  const float value = size < 1.0F ? near * x : std::copysign(tail, x);
  return x == x ? value : x;
}

// Cumulative normal distribution (1 + erf(x / sqrt 2)) / 2, within 2^-22. The error has no relative
// bound; the product with x, gelu, is as exact as x. Computed as 0.5 + x times a rational function
// of the square, with one division where erf_f32 has two and an exponential. Float is a float or a
// vector of floats.
template <class Float>
inline Float normal_below_f32(Float x) {
  constexpr float kEnd = 5.4F;  // from here on, the result and the fit are 0 or 1 in float32
  const Float end = Float{} + kEnd;
  const Float bounded = x < -kEnd ? -end : (x > kEnd ? end : x);
  const Float square = bounded * bounded;
  Float top = 1.1686947e-10F * square + -2.20014631e-08F;
  top = top * square + 3.00270264e-06F;
  top = top * square + 0.000148451237F;
  top = top * square + 0.00437033891F;
  top = top * square + 0.0338094496F;
  top = top * square + 0.398942265F;
  Float bottom = 5.50180141e-05F * square + 0.00170428728F;
  bottom = bottom * square + 0.0278588104F;
  bottom = bottom * square + 0.25141376F;
  bottom = bottom * square + 1.0F;
  const Float below = 0.5F + bounded * (top / bottom);
  return (below < 0.0F) | (x <= -kEnd) ? Float{} : below;
}

}  // namespace
}  // namespace gt
