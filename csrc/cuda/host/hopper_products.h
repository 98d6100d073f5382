// Launches of cuda/gemm_sm90.cu, which products.h chooses.
#pragma once

#include <string>

#include "cuda/host/products.h"

namespace gt::cuda {

// Why these operands are not for it; empty where they are.
std::string unfit_for_hopper(const DeviceFacts& facts, GemmLayout layout, const GemmCall& call,
                             std::int64_t batches);

// The operands are fit, and there is something to compute.
void hopper_gemm(Launcher& launcher, Element element, GemmLayout layout, const GemmCall& call,
                 std::int64_t batches, const Queue& queue);

}  // namespace gt::cuda
