// The largest of each window of pictures, and where it is.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"

namespace gt {

// Of one side of a window. Outside of the picture there is nothing, whatever the padding.
struct Window {
  std::int64_t size;
  std::int64_t stride;
  std::int64_t padding;
  std::int64_t dilation;

  // The first index of a window that is inside.
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

// Of equal values the first one wins, and of NaN, which is above all others, the last. Throws
// DtypeError or std::invalid_argument where dtypes, shapes, windows or threads do not fit.
void max_pool(const MaxPoolCall& call);

}  // namespace gt
