#include "algo/random_parameters.h"

#include <cmath>
#include <stdexcept>

#include "core/message.h"

namespace gt {
namespace {

// The largest number below the one with these bits, in any IEEE type.
template <class Bits>
Bits next_below(Bits bits) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  if ((bits & ~kSign) == 0) {
    return static_cast<Bits>(kSign | 1);
  }
  return static_cast<Bits>((bits & kSign) != 0 ? bits + 1 : bits - 1);
}

// Adding zero turns -0 into 0.
template <class T>
UniformRange<T> checked_range(Element element, T low, T high, T below) {
  const T span = high - low;
  if (!std::isfinite(low) || !std::isfinite(high) || !std::isfinite(span)) {
    throw std::invalid_argument(message("uniform: low ", low, ", high ", high,
                                        " and high - low must be finite in ",
                                        element_name(element)));
  }
  return {low + T{0}, span, low == high ? low + T{0} : below};
}

}  // namespace

void check_order(double low, double high) {
  if (!(low <= high)) {
    throw std::invalid_argument(message("uniform: low ", low, " is not at most high ", high));
  }
}

UniformRange<double> range_f64(double low, double high) {
  const auto below =
      __builtin_bit_cast(double, next_below(__builtin_bit_cast(std::uint64_t, high)));
  return checked_range(Element::kFloat64, low, high, below);
}

UniformRange<float> range_f32(double low, double high) {
  const auto to = static_cast<float>(high);
  const auto below = __builtin_bit_cast(float, next_below(__builtin_bit_cast(std::uint32_t, to)));
  return checked_range(Element::kFloat32, static_cast<float>(low), to, below);
}

UniformRange<float> range_bf16(double low, double high) {
  const std::uint16_t to = bfloat16_bits(static_cast<float>(high));
  return checked_range(Element::kBfloat16, bfloat16_value(bfloat16_bits(static_cast<float>(low))),
                       bfloat16_value(to), bfloat16_value(next_below(to)));
}

UniformRange<float> range_f16(double low, double high) {
  constexpr double kOverflow = 65520;  // rounds to infinity from here on
  if (std::abs(low) >= kOverflow || std::abs(high) >= kOverflow) {
    throw std::invalid_argument(
        message("uniform: low ", low, " and high ", high, " must be finite in float16"));
  }
  const std::uint16_t to = float16_bits(static_cast<float>(high));
  return checked_range(Element::kFloat16, float16_value(float16_bits(static_cast<float>(low))),
                       float16_value(to), float16_value(next_below(to)));
}

NormalShape<double> checked_normal(Element element, double mean, double std) {
  const bool wide = element == Element::kFloat64;
  const auto is_finite = [wide](double value) {
    return wide ? std::isfinite(value) : std::isfinite(static_cast<float>(value));
  };
  if (!(std >= 0) || !is_finite(mean) || !is_finite(std)) {
    throw std::invalid_argument(message("normal: mean ", mean, " and std ", std,
                                        " must be finite in ", wide ? "float64" : "float32",
                                        ", std not negative"));
  }
  return {mean, std};
}

IntegerRange checked_integers(Element element, std::int64_t low, std::int64_t high) {
  if (low >= high) {
    throw std::invalid_argument(message("integers: low ", low, " is not less than high ", high));
  }
  if (element == Element::kInt32 && (low < INT32_MIN || high - 1 > INT32_MAX)) {
    throw std::invalid_argument(
        message("integers: low ", low, " and high ", high, " do not fit int32"));
  }
  return {low, static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low)};
}

std::uint64_t checked_threshold(const char* op, double p) {
  if (!(p >= 0 && p <= 1)) {
    throw std::invalid_argument(message(op, ": p ", p, " is not in [0, 1]"));
  }
  return static_cast<std::uint64_t>(std::ceil(p * 0x1p32));
}

}  // namespace gt
