// Launches of cuda/gemm_sm90.cu, which products.h chooses.
#pragma once

#include <string>

#include "cuda/host/products.h"

namespace gt::cuda {

// Reason why the kernels of sm_90a do not accept the operands; empty where they do.
std::string unfit_for_hopper(const DeviceFacts& facts, GemmLayout layout, const GemmCall& call,
                             std::int64_t batches);

// Launches the product. unfit_for_hopper() must be empty, and the result must have elements.
void hopper_gemm(Launcher& launcher, Element element, GemmLayout layout, const GemmCall& call,
                 std::int64_t batches, const Queue& queue);

}  // namespace gt::cuda
