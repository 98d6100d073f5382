// Epilogue of sums: scale, bias, activation, residual, cast. Included by the files of one
// instruction set only; nothing here may have external linkage.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "algo/float_functions.h"
#include "cpu/matmul/pack.h"

namespace gt {
namespace {

constexpr double kRootHalf = 0.70710678118654752440;
constexpr double kTanhScale = 1.59576912160573071176;  // 2 sqrt(2 / pi)
constexpr double kTanhCube = 0.044715;

inline Vector<float> gelu(Vector<float> x) { return x * normal_below_f32(x); }

inline Vector<float> silu(Vector<float> x, Vector<float> steep) {
  return x / (1.0F + exponential(-steep));
}

inline Vector<float> activated(Vector<float> x, Activation activation) {
  switch (activation) {
    case Activation::kNone:
    case Activation::kGate:
      return x;
    case Activation::kRelu:
      return x < 0.0F ? Vector<float>{} : x;  // NaN stays
    case Activation::kGelu:
      return gelu(x);
    case Activation::kGeluTanh: {
      const Vector<float> cube = x * x * x * static_cast<float>(kTanhCube);
      return silu(x, (x + cube) * static_cast<float>(kTanhScale));
    }
    case Activation::kSilu:
      return silu(x, x);
  }
  __builtin_unreachable();
}

inline Vector<double> activated(Vector<double> x, Activation activation) {
  for (int lane = 0; lane < kLanes<double>; ++lane) {
    const double value = x[lane];
    switch (activation) {
      case Activation::kNone:
      case Activation::kGate:
        break;
      case Activation::kRelu:
        x[lane] = value < 0 ? 0 : value;
        break;
      case Activation::kGelu:
        x[lane] = 0.5 * value * __builtin_erfc(-value * kRootHalf);
        break;
      case Activation::kGeluTanh:
        x[lane] =
            value / (1 + __builtin_exp(-kTanhScale * (value + kTanhCube * value * value * value)));
        break;
      case Activation::kSilu:
        x[lane] = value / (1 + __builtin_exp(-value));
        break;
    }
  }
  return x;
}

// Rounds to the nearest, ties to even; NaN stays NaN.
inline Bfloat16 bfloat16_of(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40U;
  return {static_cast<std::uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? nan : rounded)};
}

typedef std::uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));
typedef std::uint32_t Words __attribute__((vector_size(kVectorBytes)));

// Rounds a vector in the same way.
inline Halves bfloat16_of(Vector<float> value) {
  const Words bits = reinterpret_cast<Words>(value);
  const Words rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const Words nan = (bits >> 16) | 0x40U;
  const Words chosen = (bits & 0x7FFFFFFFU) > 0x7F800000U ? nan : rounded;
  return __builtin_convertvector(chosen, Halves);
}

// Loads a full vector of stored numbers, converted to T.
template <class T, class Number>
inline Vector<T> read_vector(const Number* from) {
  if constexpr (sizeof(T) == sizeof(Number)) {
    return load(from);
  } else {
    Halves bits;
    std::memcpy(&bits, from, sizeof bits);
    return reinterpret_cast<Vector<T>>(__builtin_convertvector(bits, Words) << 16);
  }
}

// The first `count` numbers of a vector, converted; the others are zero.
template <class T, class Number>
inline Vector<T> read_numbers(const Number* from, int count) {
  if (count == kLanes<T>) {
    return read_vector<T>(from);
  }
  T parts[kLanes<T>] = {};
  for (int lane = 0; lane < count; ++lane) {
    parts[lane] = value_of<T>(from[lane]);
  }
  return load(parts);
}

template <class T, class Number>
inline void write_numbers(Number* to, Vector<T> values, int count) {
  if (count == kLanes<T>) {
    if constexpr (sizeof(T) == sizeof(Number)) {
      return store(to, values);
    } else {
      const Halves halves = bfloat16_of(values);
      std::memcpy(to, &halves, sizeof halves);
      return;
    }
  }
  T parts[kLanes<T>];
  store(parts, values);
  for (int lane = 0; lane < count; ++lane) {
    if constexpr (sizeof(T) == sizeof(Number)) {
      to[lane] = parts[lane];
    } else {
      to[lane] = bfloat16_of(parts[lane]);
    }
  }
}

template <class T, class Number>
void finish_numbers(const Epilogue& epilogue, std::int64_t count, const T* sums, const Number* bias,
                    const Number* residual, Number* out) {
  const T scale = static_cast<T>(epilogue.scale);
  const bool is_gate = epilogue.activation == Activation::kGate;
  const auto finish = [&](std::int64_t at, int lanes) __attribute__((always_inline)) {
    Vector<T> value = read_numbers<T>(sums + at, lanes) * scale;
    if (bias != nullptr) {
      value += read_numbers<T>(bias + at, lanes);
    }
    value = activated(value, epilogue.activation);
    if (residual != nullptr) {
      const Vector<T> other = read_numbers<T>(residual + at, lanes);
      value = is_gate ? (other <= T{} ? Vector<T>{} : value) : value + other;
    }
    write_numbers<T>(out + at, value, lanes);
  };
  std::int64_t at = 0;
  for (; at + kLanes<T> <= count; at += kLanes<T>) {
    finish(at, kLanes<T>);
  }
  if (at < count) {
    finish(at, static_cast<int>(count - at));
  }
}

template <class T>
void finish_row(const Epilogue& epilogue, Element element, std::int64_t count, const T* sums,
                const void* bias, const void* residual, void* out) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (element == Element::kBfloat16) {
      return finish_numbers<T>(epilogue, count, sums, static_cast<const Bfloat16*>(bias),
                               static_cast<const Bfloat16*>(residual), static_cast<Bfloat16*>(out));
    }
  }
  finish_numbers<T>(epilogue, count, sums, static_cast<const T*>(bias),
                    static_cast<const T*>(residual), static_cast<T*>(out));
}

}  // namespace
}  // namespace gt
