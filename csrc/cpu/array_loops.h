// Loops of ArrayPath in a form that the compiler vectorises. Included once by the file of each
// instruction set; nothing here may have external linkage.
#pragma once

#include <algorithm>
#include <cmath>

#include "algo/float_functions.h"
#include "cpu/array_path.h"
#include "cpu/batch_norm_loops.h"
#include "cpu/chain_loops.h"
#include "cpu/choice_loops.h"
#include "cpu/comparison_loops.h"
#include "cpu/dim_loops.h"
#include "cpu/reduction_loops.h"

namespace gt {
namespace {

constexpr float kGeluScale = 0.79788456080F;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715F;
constexpr float kPerSqrt2Pi = 0.39894228040F;  // 1 / sqrt(2 pi)

struct ReluOf {
  static float value(float x) { return x < 0.0F ? 0.0F : x; }  // -0 and NaN stay
  static float slope(float out) { return out > 0.0F ? 1.0F : 0.0F; }
};

struct SigmoidOf {
  static float value(float x) { return sigmoid_f32(x); }
  static float slope(float out) { return (1.0F - out) * out; }
};

struct TanhOf {
  static float value(float x) { return tanh_f32(x); }
  static float slope(float out) { return 1.0F - out * out; }
};

struct ErfOf {
  static float value(float x) { return erf_f32(x); }
};

struct ExpOf {
  static float value(float x) { return exp_f32(x); }
};

struct SiluOf {
  static float value(float x) { return x / (1.0F + exp_f32(-x)); }
  static float slope(float x) {
    const float gate = sigmoid_f32(x);
    return gate * (1.0F + x * (1.0F - gate));
  }
};

struct GeluOf {
  static float value(float x) { return x * normal_below_f32(x); }
  static float slope(float x) {
    return normal_below_f32(x) + x * (exp_of_negative_f32(-0.5F * x * x) * kPerSqrt2Pi);
  }
};

struct GeluTanhOf {
  static float inner(float x) { return kGeluScale * (x + kGeluCubic * x * x * x); }
  static float value(float x) { return 0.5F * x * (1.0F + tanh_f32(inner(x))); }
  static float slope(float x) {
    const float level = tanh_f32(inner(x));
    const float steep = kGeluScale * (1.0F + 3.0F * kGeluCubic * x * x);
    return 0.5F * (1.0F + level) + 0.5F * x * (1.0F - level * level) * steep;
  }
};

struct SignOf {
  static float value(float x) {  // 0 for NaN, as in PyTorch
    return (x > 0.0F ? 1.0F : 0.0F) - (x < 0.0F ? 1.0F : 0.0F);
  }
};

struct RsqrtOf {
  static float value(float x) { return 1.0F / std::sqrt(x); }
};

template <class Function>
void unary(const float* x, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = Function::value(x[i]);
  }
}

template <class Function>
void unary_backward(const float* grad, const float* kept, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = grad[i] * Function::slope(kept[i]);
  }
}

// An infinite or NaN gradient does not pass where the slope is zero; it passes where the operand
// was NaN, as in PyTorch.
template <>
void unary_backward<ReluOf>(const float* grad, const float* kept, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = kept[i] <= 0.0F ? 0.0F : grad[i];
  }
}

void leaky_relu(const float* x, float slope, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float below = x[i] * slope;
    out[i] = x[i] > 0.0F ? x[i] : below;
  }
}

void leaky_relu_backward(const float* grad, const float* x, float slope, float* out,
                         std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float below = grad[i] * slope;
    out[i] = x[i] > 0.0F ? grad[i] : below;
  }
}

void softplus(const float* x, float beta, float threshold, float* out, std::size_t count) {
  const float per_beta = 1.0F / beta;
  for (std::size_t i = 0; i < count; ++i) {
    const float scaled = x[i] * beta;
    const float below = softplus_f32(scaled) * per_beta;
    out[i] = scaled > threshold ? x[i] : below;
  }
}

void softplus_backward(const float* grad, const float* x, float beta, float threshold, float* out,
                       std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float scaled = x[i] * beta;
    const float below = grad[i] * sigmoid_f32(scaled);
    out[i] = scaled > threshold ? grad[i] : below;
  }
}

// NaN stays NaN; the result is `high` where low is above high, as in PyTorch.
void clamp(const float* x, float low, float high, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float raised = x[i] < low ? low : x[i];
    out[i] = raised > high ? high : raised;
  }
}

// Each step runs over a few rows, which stay in the first-level cache, before the next step: a
// short row alone would wait for its own maximum, sum and logarithm.
constexpr std::size_t kRowsAtOnce = 16;

inline std::size_t rows_at_once(std::size_t count) {
  return std::clamp<std::size_t>(2048 / std::max<std::size_t>(1, count), 1, kRowsAtOnce);
}

void softmax_of_few(const float* x, float* out, std::size_t rows, std::size_t count) {
  float levels[kRowsAtOnce];
  for (std::size_t row = 0; row < rows; ++row) {
    levels[row] = largest_of(x + row * count, count);
  }
  for (std::size_t row = 0; row < rows; ++row) {
    const float* from = x + row * count;
    float* to = out + row * count;
    const float largest = levels[row];
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = exp_of_negative_f32(from[i] - largest);
    }
  }
  for (std::size_t row = 0; row < rows; ++row) {
    const float* to = out + row * count;
    levels[row] = 1.0F / sum_of(count, [to](std::size_t i) { return to[i]; });
  }
  for (std::size_t row = 0; row < rows; ++row) {
    float* to = out + row * count;
    const float scale = levels[row];
    for (std::size_t i = 0; i < count; ++i) {
      to[i] *= scale;
    }
  }
}

void log_softmax_of_few(const float* x, float* out, std::size_t rows, std::size_t count) {
  float maxima[kRowsAtOnce], levels[kRowsAtOnce];
  for (std::size_t row = 0; row < rows; ++row) {
    maxima[row] = largest_of(x + row * count, count);
  }
  for (std::size_t row = 0; row < rows; ++row) {
    const float* from = x + row * count;
    const float largest = maxima[row];
    levels[row] = sum_of(
        count, [from, largest](std::size_t i) { return exp_of_negative_f32(from[i] - largest); });
  }
  for (std::size_t row = 0; row < rows; ++row) {
    levels[row] = std::log(levels[row]);
  }
  for (std::size_t row = 0; row < rows; ++row) {
    const float* from = x + row * count;
    float* to = out + row * count;
    const float largest = maxima[row], level = levels[row];
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = (from[i] - largest) - level;
    }
  }
}

template <void (*kFew)(const float* x, float* out, std::size_t rows, std::size_t count)>
void by_few_rows(const float* x, float* out, std::size_t rows, std::size_t count) {
  const std::size_t together = rows_at_once(count);
  for (std::size_t row = 0; row < rows; row += together) {
    kFew(x + row * count, out + row * count, std::min(together, rows - row), count);
  }
}

void softmax_backward(const float* grad, const float* y, float* out, std::size_t count) {
  const float along = sum_of(count, [grad, y](std::size_t i) { return grad[i] * y[i]; });
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = y[i] * (grad[i] - along);
  }
}

void log_softmax_backward(const float* grad, const float* y, float* out, std::size_t count) {
  const float total = sum_of(count, [grad](std::size_t i) { return grad[i]; });
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = grad[i] - exp_of_negative_f32(y[i]) * total;
  }
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps, float* out,
                float* mean, float* rstd, std::size_t count) {
  const auto size = static_cast<float>(count);
  const float middle = sum_of(count, [x](std::size_t i) { return x[i]; }) / size;
  const float spread =
      sum_of(count, [x, middle](std::size_t i) { return (x[i] - middle) * (x[i] - middle); });
  const float scale = 1.0F / std::sqrt(spread / size + eps);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = (x[i] - middle) * scale;
  }
  if (weight != nullptr) {
    for (std::size_t i = 0; i < count; ++i) {
      out[i] *= weight[i];
    }
  }
  if (bias != nullptr) {
    for (std::size_t i = 0; i < count; ++i) {
      out[i] += bias[i];
    }
  }
  *mean = middle;
  *rstd = scale;
}

// __restrict is needed: the compiler does not vectorise a loop that would first compare the
// addresses of six arrays.
template <bool kWeighted>
void layer_norm_backward_of(const float* __restrict grad, const float* __restrict x, float mean,
                            float rstd, const float* __restrict weight, float* __restrict x_grad,
                            float* __restrict weight_grad, float* __restrict bias_grad,
                            std::size_t count) {
  const auto normal = [x, mean, rstd](std::size_t i) { return (x[i] - mean) * rstd; };
  const auto inner = [grad, weight](std::size_t i) {
    return kWeighted ? grad[i] * weight[i] : grad[i];
  };
  const auto size = static_cast<float>(count);
  const float middle = sum_of(count, inner) / size;
  const float along = sum_of(count, [&](std::size_t i) { return inner(i) * normal(i); }) / size;
  for (std::size_t i = 0; i < count; ++i) {
    const float place = normal(i);
    x_grad[i] = rstd * (inner(i) - middle - place * along);
    weight_grad[i] += grad[i] * place;
    bias_grad[i] += grad[i];
  }
}

void layer_norm_backward(const float* grad, const float* x, float mean, float rstd,
                         const float* weight, float* x_grad, float* weight_grad, float* bias_grad,
                         std::size_t count) {
  const auto loop =
      weight == nullptr ? layer_norm_backward_of<false> : layer_norm_backward_of<true>;
  loop(grad, x, mean, rstd, weight, x_grad, weight_grad, bias_grad, count);
}

template <bool kWeighted>
void rms_norm_of(const float* __restrict x, float scale, const float* __restrict weight,
                 float* __restrict out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = kWeighted ? x[i] * scale * weight[i] : x[i] * scale;
  }
}

float rms_norm(const float* x, const float* weight, double eps, float* out, std::size_t count) {
  const double squares = long_sum_of(count, [x](std::size_t i) { return x[i] * x[i]; });
  const double mean = squares / static_cast<double>(count);
  const auto scale = static_cast<float>(1.0 / std::sqrt(mean + eps));
  const auto loop = weight == nullptr ? rms_norm_of<false> : rms_norm_of<true>;
  loop(x, scale, weight, out, count);
  return scale;
}

// Gradient of kRows rows that are read together; their parts of the weight's gradient are added in
// pairs.
template <bool kWeighted, std::size_t kRows>
void rms_norm_backward_of(const float* __restrict grad, const float* __restrict x,
                          const float* __restrict rstd, const float* __restrict weight,
                          float* __restrict x_grad, float* __restrict weight_grad,
                          std::size_t count) {
  for (std::size_t row = 0; row < kRows; ++row) {
    const float* __restrict g = grad + row * count;
    const float* __restrict values = x + row * count;
    float* __restrict slope = x_grad + row * count;
    const float scale = rstd[row];
    const auto normal = [values, scale](std::size_t i) { return values[i] * scale; };
    const auto inner = [g, weight](std::size_t i) { return kWeighted ? g[i] * weight[i] : g[i]; };
    const double product =
        long_sum_of(count, [inner, normal](std::size_t i) { return inner(i) * normal(i); });
    const auto along = static_cast<float>(product / static_cast<double>(count));
    for (std::size_t i = 0; i < count; ++i) {
      slope[i] = scale * (inner(i) - normal(i) * along);
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    float parts[kRows];
    for (std::size_t row = 0; row < kRows; ++row) {
      parts[row] = grad[row * count + i] * (x[row * count + i] * rstd[row]);
    }
    weight_grad[i] += combined<kRows>(parts, Sum::of);
  }
}

template <bool kWeighted>
void rms_norm_backward_rows(const float* grad, const float* x, const float* rstd,
                            const float* weight, float* x_grad, float* weight_grad,
                            std::size_t rows, std::size_t count) {
  constexpr std::size_t kTogether = 4;
  std::size_t row = 0;
  for (; row + kTogether <= rows; row += kTogether) {
    const std::size_t at = row * count;
    rms_norm_backward_of<kWeighted, kTogether>(grad + at, x + at, rstd + row, weight, x_grad + at,
                                               weight_grad, count);
  }
  for (; row < rows; ++row) {
    const std::size_t at = row * count;
    rms_norm_backward_of<kWeighted, 1>(grad + at, x + at, rstd + row, weight, x_grad + at,
                                       weight_grad, count);
  }
}

void rms_norm_backward(const float* grad, const float* x, const float* rstd, const float* weight,
                       float* x_grad, float* weight_grad, std::size_t rows, std::size_t count) {
  const auto loop =
      weight == nullptr ? rms_norm_backward_rows<false> : rms_norm_backward_rows<true>;
  loop(grad, x, rstd, weight, x_grad, weight_grad, rows, count);
}

void cross_entropy_backward(const float* log_probs, std::int64_t target, float scale, float* out,
                            std::size_t count) {
  if (target < 0) {
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = 0.0F;
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = exp_of_negative_f32(log_probs[i]) * scale;
  }
  out[target] -= scale;
}

template <bool kLargest>
void adam_of(float* param, const float* grad, float* avg, float* avg_sq, float* max_sq,
             const AdamStep& step, std::size_t count) {
  const AdamStep s = step;
  for (std::size_t i = 0; i < count; ++i) {
    const float slope = s.sign * grad[i] + s.penalty * param[i];
    const float first = s.beta1 * avg[i] + s.rest1 * slope;
    const float second = s.beta2 * avg_sq[i] + s.rest2 * slope * slope;
    float spread = second;
    if constexpr (kLargest) {
      spread = max_sq[i] > second ? max_sq[i] : second;
      max_sq[i] = spread;
    }
    avg[i] = first;
    avg_sq[i] = second;
    param[i] = param[i] * s.decay - s.step_size * first / (std::sqrt(spread) / s.root_bias + s.eps);
  }
}

void adam(float* param, const float* grad, float* avg, float* avg_sq, float* max_sq,
          const AdamStep& step, std::size_t count) {
  const auto loop = max_sq == nullptr ? adam_of<false> : adam_of<true>;
  loop(param, grad, avg, avg_sq, max_sq, step, count);
}

void sgd(float* param, const float* grad, float* buffer, const SgdStep& step, std::size_t count) {
  const SgdStep s = step;
  if (buffer == nullptr) {
    for (std::size_t i = 0; i < count; ++i) {
      param[i] -= s.lr * (s.sign * grad[i] + s.weight_decay * param[i]);
    }
    return;
  }
  const float keep = s.first ? 0.0F : s.momentum;
  const float take = s.first ? 1.0F : s.rest_dampening;
  for (std::size_t i = 0; i < count; ++i) {
    const float slope = s.sign * grad[i] + s.weight_decay * param[i];
    const float kept = keep * buffer[i] + take * slope;
    buffer[i] = kept;
    param[i] -= s.lr * (s.nesterov ? slope + s.momentum * kept : kept);
  }
}

void add(const float* x, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] += x[i];
  }
}

constexpr ArrayPath array_path_of() {
  return {
      {unary<ReluOf>, unary<SigmoidOf>, unary<TanhOf>, unary<ErfOf>, unary<ExpOf>, unary<SiluOf>,
       unary<GeluOf>, unary<GeluTanhOf>, unary<SignOf>, unary<RsqrtOf>},
      {unary_backward<ReluOf>, unary_backward<SigmoidOf>, unary_backward<TanhOf>,
       unary_backward<SiluOf>, unary_backward<GeluOf>, unary_backward<GeluTanhOf>},
      leaky_relu,
      leaky_relu_backward,
      softplus,
      softplus_backward,
      clamp,
      {choose<std::uint8_t>, choose<std::uint16_t>, choose<std::uint32_t>, choose<std::uint64_t>},
      by_few_rows<softmax_of_few>,
      by_few_rows<log_softmax_of_few>,
      softmax_backward,
      log_softmax_backward,
      layer_norm,
      layer_norm_backward,
      rms_norm,
      rms_norm_backward,
      {normalize, normalize_each, grad_sums_of_rows, grad_sums_of_columns, normalize_backward,
       normalize_backward_each},
      cross_entropy_backward,
      adam,
      sgd,
      add,
      {{sum_of_row, reduce_columns<Sum>},
       {extreme_of_row<Larger>, reduce_columns<Extreme<Larger>>},
       {extreme_of_row<Smaller>, reduce_columns<Extreme<Smaller>>}},
      cumsum_rows,
      cumsum_columns,
      {count_in_row, count_in_columns, running_count_of_row, running_count_of_columns},
      {{place_in_row<Larger>, places_in_columns<Larger>},
       {place_in_row<Smaller>, places_in_columns<Smaller>}},
      {{has_in_row<float, false>, has_in_columns<float, false>},
       {has_in_row<float, true>, has_in_columns<float, true>}},
      {{has_in_row<std::uint8_t, false>, has_in_columns<std::uint8_t, false>},
       {has_in_row<std::uint8_t, true>, has_in_columns<std::uint8_t, true>}},
      spread_of_rows,
      spread_of_columns,
      kChainLoops,
      kChainCasts,
      comparisons_of<std::int32_t>(),
      comparisons_of<std::int64_t>()};
}

}  // namespace
}  // namespace gt
