// AdamW for all parameters of a group in one launch. Loshchilov and Hutter, "Decoupled weight decay
// regularization" (ICLR 2019), in the order of torch.optim.AdamW.
#include "cuda/kernels.h"

extern "C" __global__ void __launch_bounds__(1024)
    gt_adamw_f32(const gt::AdamwTensor* tensors, std::uint32_t count, gt::AdamwStep step) {
  // The tensor of this block is the last one whose first block is at or before it.
  std::uint32_t low = 0;
  std::uint32_t high = count;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    if (tensors[middle].first_block <= blockIdx.x) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const gt::AdamwTensor tensor = tensors[low];
  const std::int64_t block = blockIdx.x - tensor.first_block;
  const std::int64_t i = block * blockDim.x + threadIdx.x;
  if (i >= tensor.elements) {
    return;
  }
  const float gradient = tensor.gradient[i];
  const float mean = tensor.mean[i] + (gradient - tensor.mean[i]) * (1.0F - step.beta1);
  const float square = tensor.square[i] * step.beta2 + (1.0F - step.beta2) * gradient * gradient;
  const float denominator =
      gt::device::square_root(square) / gt::device::square_root(step.correction2) + step.eps;
  tensor.mean[i] = mean;
  tensor.square[i] = square;
  tensor.parameter[i] = tensor.parameter[i] * (1.0F - step.lr * step.weight_decay) -
                        step.lr / step.correction1 * mean / denominator;
}
