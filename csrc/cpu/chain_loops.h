// The operators of a chain over one block (chain.h), which the compiler vectorises by itself.
// Included by array_loops.h alone; nothing here may have external linkage.
#pragma once

#include <cmath>
#include <cstddef>

#include "cpu/array_path.h"

namespace gt {
namespace {

// Each element is read before it is written, so `out` may be an operand's block.
template <class Function>
void of_one(const ChainSide& lhs, const ChainSide&, float* out, std::size_t count) {
  if (lhs.is_one) {
    const float made = Function::of(*lhs.data);
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = made;
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = Function::of(lhs.data[i]);
  }
}

template <class Function>
void of_two(const ChainSide& lhs, const ChainSide& rhs, float* out, std::size_t count) {
  const float* left = lhs.data;
  const float* right = rhs.data;
  if (lhs.is_one) {
    const float one = *left;
    if (rhs.is_one) {
      const float made = Function::of(one, *right);
      for (std::size_t i = 0; i < count; ++i) {
        out[i] = made;
      }
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = Function::of(one, right[i]);
    }
  } else if (rhs.is_one) {
    const float one = *right;
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = Function::of(left[i], one);
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = Function::of(left[i], right[i]);
    }
  }
}

struct Neg {
  static float of(float x) { return -x; }
};
struct Abs {
  static float of(float x) { return std::fabs(x); }
};
struct Square {
  static float of(float x) { return x * x; }
};
struct Reciprocal {
  static float of(float x) { return 1.0F / x; }
};
struct Sqrt {
  static float of(float x) { return std::sqrt(x); }
};
struct Rsqrt {
  static float of(float x) { return 1.0F / std::sqrt(x); }
};
// A zero and NaN stay as they are.
struct Relu {
  static float of(float x) { return x < 0.0F ? 0.0F : x; }
};
struct Add {
  static float of(float x, float y) { return x + y; }
};
struct Sub {
  static float of(float x, float y) { return x - y; }
};
struct Mul {
  static float of(float x, float y) { return x * y; }
};
struct Div {
  static float of(float x, float y) { return x / y; }
};
struct ReluBackward {
  static float of(float grad, float out) { return out <= 0.0F ? 0.0F : grad; }
};

// In the order of ChainOp.
constexpr ChainLoop kChainLoops[kChainOpCount] = {
    of_one<Neg>,  of_one<Abs>,   of_one<Square>, of_one<Reciprocal>,
    of_one<Sqrt>, of_one<Rsqrt>, of_one<Relu>,   of_two<Add>,
    of_two<Sub>,  of_two<Mul>,   of_two<Div>,    of_two<ReluBackward>};

}  // namespace
}  // namespace gt
