// Operators of GT's loops over elements: one list for the ATen helper, csrc and Python. IEEE 754
// rounds each once, or not at all, so that every loop gives the bits of ATen's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gt {

// Loops and results of an operator.
enum LoopTraits : uint8_t {
  FEW = 1,    // a loop over a few numbers of float32 or float64 (small.cpp)
  STEP = 2,   // a loop over blocks of float32, as a step of a chain (csrc/cpu/chain.h)
  JOINS = 4,  // its row runs in one pass with such rows before and after it
  BOOLS = 8,  // its row's results are bools
};

// X(operator, row of ops.toml, ATen's operator, number of operands, traits). Those with STEP come
// first: csrc numbers its loops so. The others are made of steps.
#define GT_LOOP_OPERATORS(X)                                                    \
  X(Neg, "neg", "neg", 1, FEW | STEP | JOINS)                                   \
  X(Abs, "abs", "abs", 1, FEW | STEP | JOINS)                                   \
  X(Square, "square", "square", 1, FEW | STEP | JOINS)                          \
  X(Reciprocal, "reciprocal", "reciprocal", 1, FEW | STEP | JOINS)              \
  X(Sqrt, "sqrt", "", 1, STEP | JOINS)                                          \
  X(Rsqrt, "rsqrt", "rsqrt", 1, FEW | STEP | JOINS)                             \
  X(Relu, "relu", "relu", 1, FEW | STEP | JOINS)                                \
  X(Copy, "copy", "", 1, STEP)                                                  \
  X(Add, "add", "add", 2, FEW | STEP | JOINS)                                   \
  X(Sub, "sub", "sub", 2, FEW | STEP | JOINS)                                   \
  X(Mul, "mul", "mul", 2, FEW | STEP | JOINS)                                   \
  X(Div, "div", "div", 2, FEW | STEP | JOINS)                                   \
  X(ReluBackward, "relu_backward", "threshold_backward", 2, FEW | STEP | JOINS) \
  X(Eq, "eq", "eq", 2, FEW | STEP | BOOLS)                                      \
  X(Ne, "ne", "ne", 2, FEW | STEP | BOOLS)                                      \
  X(Lt, "lt", "lt", 2, FEW | STEP | BOOLS)                                      \
  X(Le, "le", "le", 2, FEW | STEP | BOOLS)                                      \
  X(Gt, "gt", "gt", 2, FEW | STEP | BOOLS)                                      \
  X(Ge, "ge", "ge", 2, FEW | STEP | BOOLS)                                      \
  X(Where, "where", "where", 3, STEP | JOINS)                                   \
  X(Pow, "pow", "pow", 2, 0)                                                    \
  X(IsNan, "isnan", "isnan", 1, BOOLS)                                          \
  X(IsInf, "isinf", "isinf", 1, BOOLS)                                          \
  X(IsFinite, "isfinite", "isfinite", 1, BOOLS)                                 \
  X(ToFloat, "cast", "to", 1, 0)                                                \
  X(MaskedFill, "masked_fill", "masked_fill", 3, JOINS)

enum class LoopOperator : uint8_t {
#define GT_LOOP_NAME(name, row, aten, operands, traits) name,
  GT_LOOP_OPERATORS(GT_LOOP_NAME)
#undef GT_LOOP_NAME
      None
};

struct LoopFacts {
  LoopOperator op;
  std::string_view row;
  std::string_view aten;
  uint8_t operands;
  uint8_t traits;
};

inline constexpr LoopFacts LOOP_FACTS[] = {
#define GT_LOOP_FACTS(name, row, aten, operands, traits) \
  {LoopOperator::name, row, aten, operands, traits},
    GT_LOOP_OPERATORS(GT_LOOP_FACTS)
#undef GT_LOOP_FACTS
};

// Number of operators with STEP.
inline constexpr size_t LOOP_STEPS = static_cast<size_t>(LoopOperator::Where) + 1;

constexpr bool has(LoopOperator op, LoopTraits trait) {
  return op != LoopOperator::None && (LOOP_FACTS[static_cast<size_t>(op)].traits & trait) != 0;
}

constexpr int operands_of(LoopOperator op) {
  return op == LoopOperator::None ? 0 : LOOP_FACTS[static_cast<size_t>(op)].operands;
}

}  // namespace gt
