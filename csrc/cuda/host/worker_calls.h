// Launches of the kernels that a worker calls: checks, grid, arguments. Operands are addresses of
// contiguous device memory. All throw CudaError, or std::invalid_argument with the sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "core/element.h"
#include "cuda/host/launcher.h"
#include "cuda/worker_kernels.h"

namespace gt::cuda {

// Random words and box of a launch; `queue_stream` as in Queue.
struct RandomBox {
  Stream stream;
  Shape shape, global_shape, start;
  std::uintptr_t queue_stream;
};

// Gives the bits of cpu/random_fill.h. uniform and normal: float32, float64, bfloat16, float16.
void fill_uniform(Launcher& launcher, Address out, Element element, const RandomBox& box,
                  double low, double high);
void fill_normal(Launcher& launcher, Address out, Element element, const RandomBox& box,
                 double mean, double std);
// Takes int64 and int32.
void fill_integers(Launcher& launcher, Address out, Element element, const RandomBox& box,
                   std::int64_t low, std::int64_t high);
// Takes bool.
void fill_bernoulli(Launcher& launcher, Address out, const RandomBox& box, double p);
void fill_dropout_mask(Launcher& launcher, Address out, const RandomBox& box, double p);
// out = x * mask * scale in this order, float32; writes the mask to keep, bool.
void dropout(Launcher& launcher, Address x, Address out, Address keep, const RandomBox& box,
             double p, float scale);

struct AdamwOperand {
  Address parameter, gradient, mean, square;
  std::int64_t elements;
};

// Size of the device memory that adamw needs for this many tensors.
std::int64_t adamw_table_bytes(std::size_t tensors);
// One step of all tensors, in one launch. table: device memory of `table_bytes`, used until the
// launch has run.
void adamw(Launcher& launcher, const std::vector<AdamwOperand>& operands, Address table,
           std::int64_t table_bytes, const AdamwStep& step, std::uintptr_t queue_stream);

}  // namespace gt::cuda
