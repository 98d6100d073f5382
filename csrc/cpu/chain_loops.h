// Operators of a chain over one block (chain.h), in a form that the compiler vectorises. Included
// by array_loops.h alone; nothing here may have external linkage.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cpu/array_path.h"

namespace gt {
namespace {

// Each element is read before it is written, so `out` may be an operand's block.
template <class Function>
void of_one(const ChainSide* sides, float* out, std::size_t count) {
  const float* x = sides[0].data;
  if (sides[0].is_one) {
    const float made = Function::of(*x);
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = made;
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = Function::of(x[i]);
  }
}

template <class Function>
void of_two(const ChainSide* sides, float* out, std::size_t count) {
  const float* left = sides[0].data;
  const float* right = sides[1].data;
  if (sides[0].is_one) {
    const float one = *left;
    if (sides[1].is_one) {
      const float made = Function::of(one, *right);
      for (std::size_t i = 0; i < count; ++i) {
        out[i] = made;
      }
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = Function::of(one, right[i]);
    }
  } else if (sides[1].is_one) {
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

// Chooses by masks and not by branches, which random conditions would mispredict.
void chosen(const ChainSide* sides, float* out, std::size_t count) {
  const auto* condition = reinterpret_cast<const std::uint8_t*>(sides[0].data);
  if (sides[0].is_one) {
    const ChainSide& side = sides[*condition != 0 ? 1 : 2];
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = side.data[side.is_one ? 0 : i];
    }
    return;
  }
  const float* left = sides[1].data;
  const float* right = sides[2].data;
  const float first = *left;
  const float second = *right;
  if (sides[1].is_one && sides[2].is_one) {
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = condition[i] != 0 ? first : second;
    }
  } else if (sides[1].is_one) {
    for (std::size_t i = 0; i < count; ++i) {
      const float other = right[i];
      out[i] = condition[i] != 0 ? first : other;
    }
  } else if (sides[2].is_one) {
    for (std::size_t i = 0; i < count; ++i) {
      const float one = left[i];
      out[i] = condition[i] != 0 ? one : second;
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      const float one = left[i];
      const float other = right[i];
      out[i] = condition[i] != 0 ? one : other;
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
// Zeros of both signs and NaN are unchanged.
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

struct Copy {
  static float of(float x) { return x; }
};
struct Eq {
  static float of(float x, float y) { return x == y ? 1.0F : 0.0F; }
};
struct Ne {
  static float of(float x, float y) { return x != y ? 1.0F : 0.0F; }
};
struct Lt {
  static float of(float x, float y) { return x < y ? 1.0F : 0.0F; }
};
struct Le {
  static float of(float x, float y) { return x <= y ? 1.0F : 0.0F; }
};
struct Gt {
  static float of(float x, float y) { return x > y ? 1.0F : 0.0F; }
};
struct Ge {
  static float of(float x, float y) { return x >= y ? 1.0F : 0.0F; }
};

// In the order of LoopOperator.
constexpr ChainLoop kChainLoops[LOOP_STEPS] = {
    of_one<Neg>,   of_one<Abs>,  of_one<Square>,       of_one<Reciprocal>, of_one<Sqrt>,
    of_one<Rsqrt>, of_one<Relu>, of_one<Copy>,         of_two<Add>,        of_two<Sub>,
    of_two<Mul>,   of_two<Div>,  of_two<ReluBackward>, of_two<Eq>,         of_two<Ne>,
    of_two<Lt>,    of_two<Le>,   of_two<Gt>,           of_two<Ge>,         chosen};

void floats_of_bools(const void* from, float* out, std::size_t count) {
  const auto* bytes = static_cast<const std::uint8_t*>(from);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = bytes[i] != 0 ? 1.0F : 0.0F;
  }
}

template <class Integer>
void floats_of(const void* from, float* out, std::size_t count) {
  const auto* integers = static_cast<const Integer*>(from);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(integers[i]);
  }
}

void bools_of(const float* from, std::uint8_t* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = from[i] != 0.0F ? 1 : 0;
  }
}

constexpr ChainCasts kChainCasts = {floats_of_bools, floats_of<std::int32_t>,
                                    floats_of<std::int64_t>, bools_of};

}  // namespace
}  // namespace gt
