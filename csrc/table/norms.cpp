// Layer norm, RMS norm and batch norm: which calls the kernels take.
#include "cpu/norms.h"

#include <algorithm>
#include <numeric>

#include "cpu/array_path.h"
#include "cpu/batch_norm.h"
#include "table/kernel.h"

namespace gt {
namespace {

bool has_elements(const std::optional<TensorView>& view, std::size_t count) {
  return !view || count_of(*view) == count;
}

// Numbers that are normalized together, where `size` is the end of the input's sizes, with
// elements; else none.
std::size_t columns_of(const TensorView& input, Sizes size) {
  const Sizes all = sizes_of(input);
  if (size.size() > all.size() || input.is_empty() ||
      !std::ranges::equal(size, all.subspan(all.size() - size.size()))) {
    return 0;
  }
  return std::accumulate(
      size.begin(), size.end(), std::size_t{1},
      [](std::size_t count, std::int64_t one) { return count * static_cast<std::size_t>(one); });
}

// Sizes of one number for each row of columns_of.
std::vector<std::int64_t> sizes_of_rows(const TensorView& input, Sizes size) {
  std::vector<std::int64_t> sizes(input.shape, input.shape + input.rank);
  std::fill(sizes.end() - static_cast<std::ptrdiff_t>(size.size()), sizes.end(), 1);
  return sizes;
}

// input, weight, bias, size, eps.
struct LayerNormCall {
  explicit LayerNormCall(Arguments& from)
      : input(from.tensor()),
        weight(from.optional_tensor()),
        bias(from.optional_tensor()),
        size(from.integers()),
        eps(static_cast<float>(from.number())),
        columns(columns_of(input, size)) {}

  bool is_valid() const {
    return is_row_major(input) && is_row_major(weight) && is_row_major(bias) && columns != 0 &&
           has_elements(weight, columns) && has_elements(bias, columns);
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const std::vector<std::int64_t> of_rows = sizes_of_rows(input, size);
    float* out = results.floats(sizes_of(input));
    float* mean = results.floats(of_rows);
    float* rstd = results.floats(of_rows);
    for (std::size_t at = 0; at < count_of(input); at += columns) {
      array_path().layer_norm(floats(input) + at, floats(weight), floats(bias), eps, out + at,
                              mean++, rstd++, columns);
    }
    return true;
  }

  TensorView input;
  std::optional<TensorView> weight, bias;
  Sizes size;
  float eps;
  std::size_t columns;
};

// grad, of any strides, input, mean, rstd, weight, size.
struct LayerNormBackwardCall {
  explicit LayerNormBackwardCall(Arguments& from)
      : grad(from.tensor()),
        input(from.tensor()),
        mean(from.tensor()),
        rstd(from.tensor()),
        weight(from.optional_tensor()),
        size(from.integers()),
        columns(columns_of(input, size)) {}

  bool is_valid() const {
    return is_float32(grad) && is_row_major(input) && is_row_major(mean) && is_row_major(rstd) &&
           is_row_major(weight) && columns != 0 && count_of(grad) == count_of(input) &&
           has_elements(mean, count_of(input) / columns) &&
           has_elements(rstd, count_of(input) / columns) && has_elements(weight, columns);
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const RowMajor slopes(grad, results.threads());
    float* of_input = results.floats(sizes_of(input));
    float* of_weight = results.floats(size);
    float* of_bias = results.floats(size);
    std::fill_n(of_weight, columns, 0.0F);
    std::fill_n(of_bias, columns, 0.0F);
    for (std::size_t row = 0; row < count_of(mean); ++row) {
      const std::size_t at = row * columns;
      array_path().layer_norm_backward(slopes.floats() + at, floats(input) + at, floats(mean)[row],
                                       floats(rstd)[row], floats(weight), of_input + at, of_weight,
                                       of_bias, columns);
    }
    return true;
  }

  TensorView grad, input, mean, rstd;
  std::optional<TensorView> weight;
  Sizes size;
  std::size_t columns;
};

// One pass over memory pays at every size, where PyTorch has several operators.
struct RmsNormCall {
  explicit RmsNormCall(Arguments& from)
      : input(from.tensor()),
        weight(from.optional_tensor()),
        size(from.integers()),
        eps(from.number()),
        columns(columns_of(input, size)) {}

  bool is_valid() const {
    return are_float32(input, weight) && columns != 0 && has_elements(weight, columns);
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const RowMajor x(input, results.threads()), scale(weight, results.threads());
    float* out = results.floats(sizes_of(input));
    float* rstd = results.floats(sizes_of_rows(input, size));
    rms_norm({x.floats(), scale.floats(), eps, out, rstd, count_of(input) / columns, columns},
             results.threads());
    return true;
  }

  TensorView input;
  std::optional<TensorView> weight;
  Sizes size;
  double eps;
  std::size_t columns;
};

struct RmsNormBackwardCall {
  explicit RmsNormBackwardCall(Arguments& from)
      : grad(from.tensor()),
        input(from.tensor()),
        rstd(from.tensor()),
        weight(from.optional_tensor()),
        size(from.integers()),
        columns(columns_of(input, size)) {}

  bool is_valid() const {
    return are_float32(grad, input, rstd, weight) && columns != 0 &&
           count_of(grad) == count_of(input) && count_of(rstd) == count_of(input) / columns &&
           has_elements(weight, columns);
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const int threads = results.threads();
    const RowMajor slopes(grad, threads), x(input, threads), of_rows(rstd, threads),
        scale(weight, threads);
    float* x_grad = results.floats(sizes_of(input));
    float* weight_grad = results.floats(size);
    rms_norm_backward({slopes.floats(), x.floats(), of_rows.floats(), scale.floats(), x_grad,
                       weight_grad, count_of(rstd), columns},
                      threads);
    return true;
  }

  TensorView grad, input, rstd;
  std::optional<TensorView> weight;
  Sizes size;
  std::size_t columns;
};

// An image's channels; nothing where the kernels' loops do not go over them: along the numbers of a
// channel that stand beside each other, or along the channels where those are one.
std::optional<ChannelShape> channels_of(const TensorView& input) {
  if (input.rank < 2 || input.is_empty()) {
    return std::nullopt;
  }
  const auto batch = static_cast<std::size_t>(input.size(0));
  const auto channels = static_cast<std::size_t>(input.size(1));
  const ChannelShape shape{batch, channels, count_of(input) / (batch * channels)};
  return takes_batch_norm(shape) ? std::optional(shape) : std::nullopt;
}

struct BatchNormCall {
  explicit BatchNormCall(Arguments& from)
      : input(from.tensor()),
        weight(from.optional_tensor()),
        bias(from.optional_tensor()),
        eps(from.number()),
        shape(channels_of(input)) {}

  bool is_valid() const {
    return are_float32(input, weight, bias) && shape && has_elements(weight, shape->channels) &&
           has_elements(bias, shape->channels);
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const int threads = results.threads();
    const RowMajor x(input, threads), scale(weight, threads), shift(bias, threads);
    float* out = results.floats(sizes_of(input));
    const std::int64_t channels[] = {input.size(1)};
    float* mean = results.floats(channels);
    float* rstd = results.floats(channels);
    float* var = results.floats(channels);
    batch_norm({x.floats(), scale.floats(), shift.floats(), eps, out, mean, rstd, var, *shape},
               threads);
    return true;
  }

  TensorView input;
  std::optional<TensorView> weight, bias;
  double eps;
  std::optional<ChannelShape> shape;
};

struct BatchNormBackwardCall {
  explicit BatchNormBackwardCall(Arguments& from)
      : grad(from.tensor()),
        input(from.tensor()),
        mean(from.tensor()),
        rstd(from.tensor()),
        weight(from.optional_tensor()),
        shape(channels_of(input)) {}

  bool is_valid() const {
    return are_float32(grad, input, mean, rstd, weight) && shape &&
           count_of(grad) == count_of(input) && count_of(mean) == shape->channels &&
           count_of(rstd) == shape->channels && has_elements(weight, shape->channels);
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const int threads = results.threads();
    const RowMajor slopes(grad, threads), x(input, threads), level(mean, threads),
        of_channels(rstd, threads), scale(weight, threads);
    float* x_grad = results.floats(sizes_of(input));
    float* weight_grad = results.floats(sizes_of(mean));
    float* bias_grad = results.floats(sizes_of(mean));
    batch_norm_backward({slopes.floats(), x.floats(), level.floats(), of_channels.floats(),
                         scale.floats(), x_grad, weight_grad, bias_grad, *shape},
                        threads);
    return true;
  }

  TensorView grad, input, mean, rstd;
  std::optional<TensorView> weight;
  std::optional<ChannelShape> shape;
};

constexpr KernelRow kRows[] = {
    {"layer_norm", 3, run_kernel<LayerNormCall>},
    {"layer_norm_backward", 3, run_kernel<LayerNormBackwardCall>},
    {"rms_norm", 2, run_kernel<RmsNormCall>},
    {"rms_norm_backward", 2, run_kernel<RmsNormBackwardCall>},
    {"batch_norm", 4, run_kernel<BatchNormCall>},
    {"batch_norm_backward", 3, run_kernel<BatchNormBackwardCall>},
};

}  // namespace

std::span<const KernelRow> norm_kernels() { return kRows; }

}  // namespace gt
