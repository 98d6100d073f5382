// Multiplies matrices: shapes, strides, batches, blocks and threads.
#pragma once

#include "core/tensor_view.h"
#include "cpu/matmul/matmul_path.h"

namespace gt {

// out = activation(scale * (a @ b) + bias) + residual.
struct MatmulCall {
  TensorView out;  // [..., m, n], its last dim contiguous
  TensorView a;    // [..., m, k], any strides
  TensorView b;    // [..., k, n], any strides; leading dims of a and b broadcast to out's
  const TensorView* bias = nullptr;      // [n], contiguous
  const TensorView* residual = nullptr;  // like out
  Epilogue epilogue = {};
  int threads = 1;
};

// All operands have one element, float32, float64 or bfloat16, except that a, b and out may mix
// float32 and bfloat16; bias and residual have out's. The bits of the result depend on the
// operands, their strides and the instruction set, not on the number of threads. Throws
// std::invalid_argument or DtypeError where the operands do not fit.
void check_matmul(const MatmulCall& call);

// The call must have been checked. Throws std::bad_alloc only.
void matmul(const MatmulCall& call);

}  // namespace gt
