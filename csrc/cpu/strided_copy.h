// Contiguous copies of arrays with permuted dims.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gt {

struct StridedDim {
  std::int64_t size, stride;  // in elements
};

// Writes the elements, of 1, 2, 4 or 8 bytes, to out in row-major order, on at most `threads`
// threads. No dim may be of size 0. Throws std::invalid_argument for elements of other sizes.
void strided_copy(std::size_t element_bytes, const void* from, std::span<const StridedDim> dims,
                  void* out, int threads);

}  // namespace gt
