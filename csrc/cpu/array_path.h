// The inner loops of the array kernels (float32, contiguous), once for each instruction set. Shapes
// and threads are the callers'. All paths give the same bits: sums go over 16 places
// everywhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cpu_path.h"

namespace gt {

enum class Unary { kRelu, kSigmoid, kTanh, kErf, kExp, kSilu, kGelu, kGeluTanh, kSign, kRsqrt };
inline constexpr std::size_t kUnaryCount = 10;

// Of a gradient and what forward kept: its operand, or its result.
enum class UnaryBackward { kRelu, kSigmoid, kTanh, kSilu, kGelu, kGeluTanh };
inline constexpr std::size_t kUnaryBackwardCount = 6;

enum class Reduce { kSum, kLargest, kSmallest };
inline constexpr std::size_t kReduceCount = 3;

// Of one row, and of each column of `rows` rows that stand one behind the other.
struct Reduction {
  float (*row)(const float* x, std::size_t count);
  void (*columns)(const float* x, std::size_t rows, std::size_t columns, float* out);
};

// Columns that a loop takes at once, at most: what it has of each stays in the first cache.
inline constexpr std::size_t kColumnsTogether = 512;

// `rows` rows of columns beside each other, each row `stride` numbers behind the one before it.
struct ColumnBlock {
  std::size_t rows, stride, columns;
};

// Where the largest or smallest number is, the first of equal ones; what is no number is above and
// below all others.
enum class Place { kLargest, kSmallest };
inline constexpr std::size_t kPlaceCount = 2;

struct PlaceLoops {
  std::size_t (*row)(const float* x, std::size_t count);
  void (*columns)(const float* x, const ColumnBlock& block, std::int64_t* out);
};

// What is looked for: a number that is not zero, or a zero.
enum class Sought { kNonzero, kZero };
inline constexpr std::size_t kSoughtCount = 2;

template <class T>
struct SearchLoops {
  bool (*row)(const T* x, std::size_t count);
  void (*columns)(const T* x, const ColumnBlock& block, std::uint8_t* out);
};

// Sums of bools, of which those that are true count one each, and running sums.
struct BoolSums {
  std::int64_t (*row)(const std::uint8_t* x, std::size_t count);
  void (*columns)(const std::uint8_t* x, const ColumnBlock& block, std::int64_t* out);
  void (*running_row)(const std::uint8_t* x, std::int64_t* out, std::size_t count);
  void (*running_columns)(const std::uint8_t* x, const ColumnBlock& block, std::int64_t* out);
};

// The sums of numbers without a first one, and of their squares.
struct Spread {
  double sum, squares;
};

// What IEEE 754 rounds once for each of the operations that its name says, as every library does.
enum class ChainOp {
  kNeg,
  kAbs,
  kSquare,
  kReciprocal,
  kSqrt,
  kRsqrt,
  kRelu,
  kCopy,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kReluBackward,
  kEq,  // 1 where it is so, else 0
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kWhere  // of a condition and two others
};
inline constexpr std::size_t kChainOpCount = 20;

constexpr int operands_of(ChainOp op) {
  return op < ChainOp::kAdd ? 1 : op == ChainOp::kWhere ? 3 : 2;
}

// An operand over a block: as many numbers as it has, or one for all. A condition's are bools, a
// byte each.
struct ChainSide {
  const float* data;
  bool is_one;
};

using ChainLoop = void (*)(const ChainSide* sides, float* out, std::size_t count);

// Elements of other types as float32, and float32 as bools.
struct ChainCasts {
  void (*of_bools)(const void* from, float* out, std::size_t count);
  void (*of_int32)(const void* from, float* out, std::size_t count);
  void (*of_int64)(const void* from, float* out, std::size_t count);
  void (*to_bools)(const float* from, std::uint8_t* out, std::size_t count);
};

// Bools, and what is chosen between by them: as many elements, or one for all.
struct ChoiceSides {
  const std::uint8_t* condition;
  const void* x;
  const void* y;
  bool x_is_one, y_is_one;
};

// out = condition ? x : y; out may be x or y.
using ChoiceLoop = void (*)(const ChoiceSides& sides, void* out, std::size_t count);

enum class Comparison { kEq, kNe, kLt, kLe, kGt, kGe };
inline constexpr std::size_t kComparisonCount = 6;

// Whether it holds of each number of x and the one of y, or its first, as bools.
template <class T>
struct Comparisons {
  void (*of[kComparisonCount])(const T* x, const T* y, bool is_one, std::uint8_t* out,
                               std::size_t count);
};

// What one step of Adam needs besides arrays; made once for a whole tensor.
struct AdamStep {
  float decay;    // of the parameter (decoupled), else 1
  float penalty;  // of the gradient (not decoupled), else 0
  float beta1, beta2;
  float rest1, rest2;  // 1 - beta
  float step_size;     // lr / (1 - beta1^step)
  float root_bias;     // sqrt(1 - beta2^step)
  float eps;
  float sign;  // -1 where the objective is maximised
};

struct SgdStep {
  float lr, momentum, rest_dampening, weight_decay, sign;
  bool nesterov, first;
};

// Of a channel, or of each of a row: (x - mean) * scale + shift.
struct ChannelScale {
  const float* mean;
  const float* scale;
  const float* shift;
};

// (grad - level - (x - mean) * slope) * scale.
struct ChannelSlope {
  const float* mean;
  const float* level;
  const float* slope;
  const float* scale;
};

// The sums of gradients, and of their products with x - mean.
struct GradSums {
  double grad, product;
};

// Rows of one channel, and rows with a number of each channel.
struct BatchNormLoops {
  void (*normalize)(const float* x, const ChannelScale& of, float* out, std::size_t count);
  void (*normalize_each)(const float* x, const ChannelScale& of, float* out, std::size_t count);
  GradSums (*sums_of_rows)(const float* grad, const float* x, float mean, const ColumnBlock& block);
  void (*sums_of_columns)(const float* grad, const float* x, const float* mean,
                          const ColumnBlock& block, GradSums* out);
  void (*backward)(const float* grad, const float* x, const ChannelSlope& of, float* out,
                   std::size_t count);
  void (*backward_each)(const float* grad, const float* x, const ChannelSlope& of, float* out,
                        std::size_t count);
};

struct ArrayPath {
  void (*unary[kUnaryCount])(const float* x, float* out, std::size_t count);
  void (*unary_backward[kUnaryBackwardCount])(const float* grad, const float* kept, float* out,
                                              std::size_t count);
  void (*leaky_relu)(const float* x, float slope, float* out, std::size_t count);
  void (*leaky_relu_backward)(const float* grad, const float* x, float slope, float* out,
                              std::size_t count);
  // x where x beta is above the threshold.
  void (*softplus)(const float* x, float beta, float threshold, float* out, std::size_t count);
  void (*softplus_backward)(const float* grad, const float* x, float beta, float threshold,
                            float* out, std::size_t count);
  void (*clamp)(const float* x, float low, float high, float* out, std::size_t count);
  ChoiceLoop choices[4];  // of elements of 1, 2, 4 and 8 bytes
  // Rows of `count` elements.
  void (*softmax)(const float* x, float* out, std::size_t rows, std::size_t count);
  void (*log_softmax)(const float* x, float* out, std::size_t rows, std::size_t count);
  void (*softmax_backward)(const float* grad, const float* y, float* out, std::size_t count);
  void (*log_softmax_backward)(const float* grad, const float* y, float* out, std::size_t count);
  // weight and bias may be null; mean and rstd get one number.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, float* out,
                     float* mean, float* rstd, std::size_t count);
  // weight_grad and bias_grad are added to.
  void (*layer_norm_backward)(const float* grad, const float* x, float mean, float rstd,
                              const float* weight, float* x_grad, float* weight_grad,
                              float* bias_grad, std::size_t count);
  // weight may be null; the result is rstd.
  float (*rms_norm)(const float* x, const float* weight, double eps, float* out, std::size_t count);
  // Of rows that stand one behind the other. weight_grad is added to.
  void (*rms_norm_backward)(const float* grad, const float* x, const float* rstd,
                            const float* weight, float* x_grad, float* weight_grad,
                            std::size_t rows, std::size_t count);
  BatchNormLoops batch_norm;
  // out = scale (e^log_probs - one at target); target < 0 where the row is left out (out = 0).
  void (*cross_entropy_backward)(const float* log_probs, std::int64_t target, float scale,
                                 float* out, std::size_t count);
  // max_sq may be null.
  void (*adam)(float* param, const float* grad, float* avg, float* avg_sq, float* max_sq,
               const AdamStep& step, std::size_t count);
  // buffer is null without momentum.
  void (*sgd)(float* param, const float* grad, float* buffer, const SgdStep& step,
              std::size_t count);
  void (*add)(const float* x, float* out, std::size_t count);  // out += x
  Reduction reductions[kReduceCount];
  // Running sums in float64, each of which is rounded: of rows that stand one behind the other.
  void (*cumsum_rows)(const float* x, float* out, std::size_t rows, std::size_t count);
  void (*cumsum_columns)(const float* x, const ColumnBlock& block, float* out);
  BoolSums bool_sums;
  PlaceLoops places[kPlaceCount];
  SearchLoops<float> float_searches[kSoughtCount];
  SearchLoops<std::uint8_t> bool_searches[kSoughtCount];
  Spread (*spread_rows)(const float* x, float shift, const ColumnBlock& block);  // of all rows
  void (*spread_columns)(const float* x, const ColumnBlock& block, Spread* out);
  const ChainLoop* chain;  // by ChainOp
  ChainCasts chain_casts;
  Comparisons<std::int32_t> compare_int32;
  Comparisons<std::int64_t> compare_int64;
};

extern const ArrayPath kScalarArrays;
extern const ArrayPath kAvx2Arrays;
extern const ArrayPath kAvx512Arrays;

// By instruction set: x86.cpp and no_x86.cpp.
extern const PathTable<ArrayPath> kArrayPaths;

inline const ArrayPath& array_path() { return of_path(kArrayPaths); }

}  // namespace gt
