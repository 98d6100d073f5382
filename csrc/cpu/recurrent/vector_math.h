// Vectors of float32, and the exponential functions of gates. Included by one file for each
// instruction set, with its width. Everything has internal linkage, since it compiles to different
// code.
#pragma once

#include <cstdint>

namespace gt {
namespace {

// Loads and stores the first `count` floats of a vector, in plain C++.
template <int kWidth>
struct PlainEnds {
  static inline void load(void* vector, const float* from, int count) {
    float lanes[kWidth]{};
    for (int lane = 0; lane < count; ++lane) {
      lanes[lane] = from[lane];
    }
    __builtin_memcpy(vector, lanes, sizeof lanes);
  }

  static inline void store(float* to, const void* vector, int count) {
    float lanes[kWidth];
    __builtin_memcpy(lanes, vector, sizeof lanes);
    for (int lane = 0; lane < count; ++lane) {
      to[lane] = lanes[lane];
    }
  }
};

template <int kWidth, class Ends>
struct Lanes {
  static constexpr int kCount = kWidth;
  typedef float F __attribute__((vector_size(4 * kWidth)));
  typedef std::uint32_t U __attribute__((vector_size(4 * kWidth)));

  static inline F splat(float value) { return F{} + value; }

  static inline F load(const float* from) {
    F value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
  }

  // Loads the first `count` lanes only; the others are zero.
  static inline F load(const float* from, int count) {
    F value;
    if (count == kWidth) {
      return load(from);
    }
    Ends::load(&value, from, count);
    return value;
  }

  static inline void store(float* to, F value, int count) {
    if (count == kWidth) {
      __builtin_memcpy(to, &value, sizeof value);
    } else {
      Ends::store(to, &value, count);
    }
  }

  // exp(x) = scale * (1 + part), |x| <= 88: x = n ln 2 + r, scale = 2^n, part = e^r - 1 by its
  // Taylor series, |r| <= ln 2 / 2, whose next term is below 2^-25 of the sum.
  struct Exponential {
    F scale;
    F part;
  };

  static inline Exponential exponential(F x) {
    const F magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    const F rounded = x * 1.44269504f + magic;
    const F n = rounded - magic;
    const F r = (x - n * 0.693359375f) - n * -2.12194440e-4f;  // ln 2 in two parts
    F tail = splat(1.0f / 5040) * r + 1.0f / 720;
    tail = tail * r + 1.0f / 120;
    tail = tail * r + 1.0f / 24;
    tail = tail * r + 1.0f / 6;
    tail = tail * r + 0.5f;
    const U exponent = (reinterpret_cast<U>(rounded) << 23) + 0x3f800000u;
    return {reinterpret_cast<F>(exponent), r + r * r * tail};
  }

  // Within 4 units in the last place; NaN for NaN.
  static inline F sigmoid(F x) {
    F y = -x;
    y = y > 88.0f ? splat(88.0f) : y;
    y = y < -88.0f ? splat(-88.0f) : y;
    const Exponential e = exponential(y);
    return 1.0f / (1.0f + (e.scale + e.scale * e.part));
  }

  // Within 4 units in the last place, near zero too: (e^2x - 1) / (e^2x + 1), where e^2x - 1 has no
  // cancellation for n = 0.
  static inline F tanh(F x) {
    const U sign = reinterpret_cast<U>(x) & 0x80000000u;
    F y = reinterpret_cast<F>(reinterpret_cast<U>(x) ^ sign);
    y = y > 10.0f ? splat(10.0f) : y;
    const Exponential e = exponential(y + y);
    const F above = (e.scale - 1.0f) + e.scale * e.part;
    return reinterpret_cast<F>(reinterpret_cast<U>(above / (above + 2.0f)) | sign);
  }
};

}  // namespace
}  // namespace gt
