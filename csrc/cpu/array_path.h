// Inner loops of the array kernels (float32, contiguous), once for each instruction set. Shapes and
// threads belong to the callers. All paths give the same bits: every sum has 16 accumulators.
#pragma once

#include <cstddef>
#include <cstdint>

#include "aten/loop_operators.h"
#include "core/cpu_path.h"

namespace gt {

enum class Unary { kRelu, kSigmoid, kTanh, kErf, kExp, kSilu, kGelu, kGeluTanh, kSign, kRsqrt };
inline constexpr std::size_t kUnaryCount = 10;

// Gradients computed from the result's gradient and the saved operand or result.
enum class UnaryBackward { kRelu, kSigmoid, kTanh, kSilu, kGelu, kGeluTanh };
inline constexpr std::size_t kUnaryBackwardCount = 6;

enum class Reduce { kSum, kLargest, kSmallest };
inline constexpr std::size_t kReduceCount = 3;

// Reductions of one row, and of each column of `rows` contiguous rows.
struct Reduction {
  float (*row)(const float* x, std::size_t count);
  void (*columns)(const float* x, std::size_t rows, std::size_t columns, float* out);
};

// Maximum number of columns that a loop takes at once, so that its state stays in the first-level
// cache.
inline constexpr std::size_t kColumnsTogether = 512;

// `rows` rows of adjacent columns, with `stride` numbers from one row to the next.
struct ColumnBlock {
  std::size_t rows, stride, columns;
};

// Search for the index of the largest or smallest number: the first of equal ones. NaN counts as
// more extreme than every number.
enum class Place { kLargest, kSmallest };
inline constexpr std::size_t kPlaceCount = 2;

struct PlaceLoops {
  std::size_t (*row)(const float* x, std::size_t count);
  void (*columns)(const float* x, const ColumnBlock& block, std::int64_t* out);
};

// Search for a number that is not zero, or for a zero.
enum class Sought { kNonzero, kZero };
inline constexpr std::size_t kSoughtCount = 2;

template <class T>
struct SearchLoops {
  bool (*row)(const T* x, std::size_t count);
  void (*columns)(const T* x, const ColumnBlock& block, std::uint8_t* out);
};

// Counts and running counts of true bools.
struct BoolSums {
  std::int64_t (*row)(const std::uint8_t* x, std::size_t count);
  void (*columns)(const std::uint8_t* x, const ColumnBlock& block, std::int64_t* out);
  void (*running_row)(const std::uint8_t* x, std::int64_t* out, std::size_t count);
  void (*running_columns)(const std::uint8_t* x, const ColumnBlock& block, std::int64_t* out);
};

// Sums of the numbers minus a shift, and of their squares.
struct Spread {
  double sum, squares;
};

// An operand over a block: one number for each element, or one for all. A condition has bools of
// one byte each.
struct ChainSide {
  const float* data;
  bool is_one;
};

using ChainLoop = void (*)(const ChainSide* sides, float* out, std::size_t count);

// Conversions from other element types to float32, and from float32 to bools.
struct ChainCasts {
  void (*of_bools)(const void* from, float* out, std::size_t count);
  void (*of_int32)(const void* from, float* out, std::size_t count);
  void (*of_int64)(const void* from, float* out, std::size_t count);
  void (*to_bools)(const float* from, std::uint8_t* out, std::size_t count);
};

// Operands of a choice: bools, and two arrays of as many elements or of one for all.
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

// Compares each number of x with that of y, or with y's first; writes bools.
template <class T>
struct Comparisons {
  void (*of[kComparisonCount])(const T* x, const T* y, bool is_one, std::uint8_t* out,
                               std::size_t count);
};

// Constants of one Adam step, computed once for a whole tensor.
struct AdamStep {
  float decay;    // factor of the parameter (decoupled weight decay), else 1
  float penalty;  // added times the parameter to the gradient (coupled weight decay), else 0
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

// (x - mean) * scale + shift, for one channel or for one number of each channel.
struct ChannelScale {
  const float* mean;
  const float* scale;
  const float* shift;
};

// (grad - level - (x - mean) * slope) * scale, for one channel or for one number of each channel.
struct ChannelSlope {
  const float* mean;
  const float* level;
  const float* slope;
  const float* scale;
};

// Sums of gradients, and of their products with x - mean.
struct GradSums {
  double grad, product;
};

// Loops over rows of one channel, and (the `each` ones) over rows with one number of each channel.
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
  // Gives x where x * beta is above the threshold.
  void (*softplus)(const float* x, float beta, float threshold, float* out, std::size_t count);
  void (*softplus_backward)(const float* grad, const float* x, float beta, float threshold,
                            float* out, std::size_t count);
  void (*clamp)(const float* x, float low, float high, float* out, std::size_t count);
  ChoiceLoop choices[4];  // for elements of 1, 2, 4 and 8 bytes
  // Take `rows` rows of `count` elements.
  void (*softmax)(const float* x, float* out, std::size_t rows, std::size_t count);
  void (*log_softmax)(const float* x, float* out, std::size_t rows, std::size_t count);
  void (*softmax_backward)(const float* grad, const float* y, float* out, std::size_t count);
  void (*log_softmax_backward)(const float* grad, const float* y, float* out, std::size_t count);
  // weight and bias may be null; one number is written to mean and to rstd.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, float* out,
                     float* mean, float* rstd, std::size_t count);
  // Adds to weight_grad and bias_grad.
  void (*layer_norm_backward)(const float* grad, const float* x, float mean, float rstd,
                              const float* weight, float* x_grad, float* weight_grad,
                              float* bias_grad, std::size_t count);
  // weight may be null; returns rstd.
  float (*rms_norm)(const float* x, const float* weight, double eps, float* out, std::size_t count);
  // Takes contiguous rows. Adds to weight_grad.
  void (*rms_norm_backward)(const float* grad, const float* x, const float* rstd,
                            const float* weight, float* x_grad, float* weight_grad,
                            std::size_t rows, std::size_t count);
  BatchNormLoops batch_norm;
  // out = scale * (e^log_probs - one_hot(target)); target < 0 ignores the row (out = 0).
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
  // Running sums in float64, rounded at each element, over contiguous rows.
  void (*cumsum_rows)(const float* x, float* out, std::size_t rows, std::size_t count);
  void (*cumsum_columns)(const float* x, const ColumnBlock& block, float* out);
  BoolSums bool_sums;
  PlaceLoops places[kPlaceCount];
  SearchLoops<float> float_searches[kSoughtCount];
  SearchLoops<std::uint8_t> bool_searches[kSoughtCount];
  Spread (*spread_rows)(const float* x, float shift, const ColumnBlock& block);  // over all rows
  void (*spread_columns)(const float* x, const ColumnBlock& block, Spread* out);
  const ChainLoop* chain;  // by LoopOperator
  ChainCasts chain_casts;
  Comparisons<std::int32_t> compare_int32;
  Comparisons<std::int64_t> compare_int64;
};

extern const ArrayPath kScalarArrays;
extern const ArrayPath kAvx2Arrays;
extern const ArrayPath kAvx512Arrays;

// Table by instruction set, filled by x86.cpp or no_x86.cpp.
extern const PathTable<ArrayPath> kArrayPaths;

inline const ArrayPath& array_path() { return of_path(kArrayPaths); }

}  // namespace gt
