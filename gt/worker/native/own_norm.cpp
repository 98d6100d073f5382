// RMS norm and batch norm by GT's own kernels.
#include <ATen/Parallel.h>
#include <ATen/Tensor.h>

#include "own.h"

namespace gt {
namespace {

using at::Tensor;

std::optional<Tensor> row_major(const std::optional<Tensor>& tensor) {
  return tensor ? std::optional<Tensor>(tensor->contiguous()) : std::nullopt;
}

}  // namespace

// As aten::_fused_rms_norm: input, normalized_shape, weight or none, eps.
bool rms_norm(const Values& values, Values& results) {
  Tensor input = tensor_of(values[0]);
  std::optional<Tensor> weight = optional_of(values[2]);
  if (kernels.rms_norm == nullptr || !are_floats({&input, weight ? &*weight : nullptr}) ||
      input.numel() == 0)
    return false;
  Tensor x = input.contiguous();
  std::optional<Tensor> scale = row_major(weight);
  std::vector<int64_t> of_rows = input.sizes().vec();
  std::fill(of_rows.end() - values[1].toIntVector().size(), of_rows.end(), 1);
  Tensor out = empty(input.sizes(), input);
  Tensor rstd = empty(of_rows, input);
  call(kernels.rms_norm, {given(x), given(scale), given(out), given(rstd)}, {values[3].toDouble()},
       at::get_num_threads());
  results = {out, rstd};
  return true;
}

// grad, input, rstd, weight or none, normalized_shape.
bool rms_norm_backward(const Values& values, Values& results) {
  Tensor grad = tensor_of(values[0]);
  Tensor input = tensor_of(values[1]);
  Tensor rstd = tensor_of(values[2]);
  std::optional<Tensor> weight = optional_of(values[3]);
  if (kernels.rms_norm_backward == nullptr ||
      !are_floats({&grad, &input, &rstd, weight ? &*weight : nullptr}) || input.numel() == 0)
    return false;
  grad = grad.contiguous();
  input = input.contiguous();
  rstd = rstd.contiguous();
  std::optional<Tensor> scale = row_major(weight);
  Tensor made[] = {empty(input.sizes(), input), empty(values[4].toIntVector(), input)};
  call(kernels.rms_norm_backward,
       {given(grad), given(input), given(rstd), given(scale), given(made[0]), given(made[1])}, {},
       at::get_num_threads());
  results = {made[0], made[1]};
  return true;
}

namespace {

// Numbers of a channel beside each other, where the kernel takes them.
std::optional<double> inner_of(const Tensor& input) {
  if (input.dim() < 2 || input.numel() == 0) return std::nullopt;
  int64_t inner = input.numel() / (input.size(0) * input.size(1));
  if (inner != 1 && inner < CHANNEL_MIN) return std::nullopt;
  return static_cast<double>(inner);
}

}  // namespace

// input, weight or none, bias or none, eps.
bool batch_norm(const Values& values, Values& results) {
  Tensor input = tensor_of(values[0]);
  std::optional<Tensor> weight = optional_of(values[1]);
  std::optional<Tensor> bias = optional_of(values[2]);
  if (kernels.batch_norm == nullptr ||
      !are_floats({&input, weight ? &*weight : nullptr, bias ? &*bias : nullptr}))
    return false;
  std::optional<double> inner = inner_of(input);
  if (!inner) return false;
  Tensor x = input.contiguous();
  std::optional<Tensor> scale = row_major(weight);
  std::optional<Tensor> shift = row_major(bias);
  int64_t channels[] = {input.size(1)};
  Tensor out = empty(input.sizes(), input);
  Tensor statistics[] = {empty(channels, input), empty(channels, input), empty(channels, input)};
  call(kernels.batch_norm,
       {given(x), given(scale), given(shift), given(out), given(statistics[0]),
        given(statistics[1]), given(statistics[2])},
       {*inner, values[3].toDouble()}, at::get_num_threads());
  results = {out, statistics[0], statistics[1], statistics[2]};
  return true;
}

// As aten::native_batch_norm_backward of a batch's own statistics: grad, input, weight or none,
// running statistics, mean, rstd, whether it is trained, eps, which are wanted.
bool batch_norm_backward(const Values& values, Values& results) {
  Tensor grad = tensor_of(values[0]);
  Tensor input = tensor_of(values[1]);
  std::optional<Tensor> weight = optional_of(values[2]);
  Tensor mean = tensor_of(values[5]);
  Tensor rstd = tensor_of(values[6]);
  if (kernels.batch_norm_backward == nullptr || !values[7].toBool() ||
      !are_floats({&grad, &input, &mean, &rstd, weight ? &*weight : nullptr}))
    return false;
  std::optional<double> inner = inner_of(input);
  if (!inner) return false;
  grad = grad.contiguous();
  input = input.contiguous();
  mean = mean.contiguous();
  rstd = rstd.contiguous();
  std::optional<Tensor> scale = row_major(weight);
  Tensor made[] = {empty(input.sizes(), input), empty(mean.sizes(), input),
                   empty(mean.sizes(), input)};
  call(kernels.batch_norm_backward,
       {given(grad), given(input), given(mean), given(rstd), given(scale), given(made[0]),
        given(made[1]), given(made[2])},
       {*inner}, at::get_num_threads());
  results = {made[0], made[1], made[2]};
  return true;
}

}  // namespace gt
