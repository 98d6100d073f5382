// Maximum of each window over images, and its index.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"

namespace gt {

// One dimension of a window. Padding contributes no elements.
struct Window {
  std::int64_t size;
  std::int64_t stride;
  std::int64_t padding;
  std::int64_t dilation;

  // First index of a window that is inside the picture.
  std::int64_t first(std::int64_t place) const {
    const std::int64_t start = place * stride - padding;
    return start < 0 ? start + (-start + dilation - 1) / dilation * dilation : start;
  }
};

struct MaxPoolCall {
  TensorView out;      // float32 [..., oh, ow], as all contiguous
  TensorView indices;  // int64, the same shape: i * w + j in the picture
  TensorView input;    // float32 [..., h, w]
  Window rows;
  Window columns;
  int threads;
};

// Among equal values the first wins; NaN is above all others, and the last NaN wins. Throws
// DtypeError or std::invalid_argument where dtypes, shapes, windows or threads do not fit.
void max_pool(const MaxPoolCall& call);

}  // namespace gt
