// The element types that kernels know, and the 16-bit ones' values. No arrays here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "core/message.h"

namespace gt {

enum class Element {
  kBool,
  kInt32,
  kInt64,
  kUint32,
  kBfloat16,
  kFloat16,
  kFloat32,
  kFloat64,
  kUint8,
  kInt8,
  kInt16
};

constexpr const char* element_name(Element element) {
  switch (element) {
    case Element::kBool:
      return "bool";
    case Element::kInt32:
      return "int32";
    case Element::kInt64:
      return "int64";
    case Element::kUint32:
      return "uint32";
    case Element::kBfloat16:
      return "bfloat16";
    case Element::kFloat16:
      return "float16";
    case Element::kFloat32:
      return "float32";
    case Element::kFloat64:
      return "float64";
    case Element::kUint8:
      return "uint8";
    case Element::kInt8:
      return "int8";
    case Element::kInt16:
      return "int16";
  }
  __builtin_unreachable();
}

constexpr std::size_t element_bytes(Element element) {
  switch (element) {
    case Element::kBool:
    case Element::kUint8:
    case Element::kInt8:
      return 1;
    case Element::kInt16:
    case Element::kBfloat16:
    case Element::kFloat16:
      return 2;
    case Element::kInt32:
    case Element::kUint32:
    case Element::kFloat32:
      return 4;
    case Element::kInt64:
    case Element::kFloat64:
      return 8;
  }
  __builtin_unreachable();
}

// An array's dtype is not one that the function fills. TypeError in Python.
class DtypeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline float bfloat16_value(std::uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}

// Converts numbers only: bits of infinity or NaN give finite values from 65536 on.
inline float float16_value(std::uint16_t bits) {
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t fraction = bits & 0x3FFU;
  const float size = exponent == 0
                         ? static_cast<float>(fraction) * 0x1p-24F
                         : __builtin_bit_cast(float, ((exponent + 112U) << 23) | (fraction << 13));
  return (bits & 0x8000U) != 0 ? -size : size;
}

}  // namespace gt
