// Launches of matrix products: checks, choice of the kernel, grid, arguments. All throw CudaError,
// or std::invalid_argument with the sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "core/element.h"
#include "cuda/gemm.h"
#include "cuda/host/launcher.h"

namespace gt::cuda {

// Storage of the operands, see cuda/worker_kernels.h.
enum class GemmLayout { kNN, kNT, kTN };

// Kernel to use: kAuto chooses by device and operands, the others serve tests and timings.
enum class GemmPath { kAuto, kSm80, kSm90a };

// Product of `batches` matrices in bfloat16 or float16; cuda/gemm.h states the requirements. kSm90a
// throws where kAuto would choose another kernel.
void gemm(Launcher& launcher, Element element, GemmLayout layout, const GemmCall& call,
          std::int64_t batches, GemmPath path, std::uintptr_t queue_stream);
// Size of the device memory that grouped_gemm needs for this many products.
std::int64_t gemm_table_bytes(std::size_t products);
// Several products, of one batch each, in one launch. table: device memory of `table_bytes`, used
// until the launch has run.
void grouped_gemm(Launcher& launcher, Element element, GemmLayout layout,
                  const std::vector<GemmCall>& calls, Address table, std::int64_t table_bytes,
                  std::uintptr_t queue_stream);

}  // namespace gt::cuda
