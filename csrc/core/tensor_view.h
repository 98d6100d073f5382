// A strided array owned by the caller, as kernels read and write it. No Python here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/element.h"
#include "core/message.h"

namespace gt {

// Strides count elements. shape and strides hold `rank` numbers and live as long as the array.
struct TensorView {
  void* data;
  Element element;
  int rank;
  const std::int64_t* shape;
  const std::int64_t* strides;

  // Negative dims count from the end.
  std::int64_t size(int dim) const { return shape[dim < 0 ? dim + rank : dim]; }
  std::int64_t stride(int dim) const { return strides[dim < 0 ? dim + rank : dim]; }

  Shape shape_copy() const { return {shape, shape + rank}; }
  Shape strides_copy() const { return {strides, strides + rank}; }

  bool is_empty() const {
    for (int dim = 0; dim < rank; ++dim) {
      if (shape[dim] == 0) {
        return true;
      }
    }
    return false;
  }

  std::int64_t elements() const {
    std::int64_t count = 1;
    for (int dim = 0; dim < rank; ++dim) {
      count *= shape[dim];
    }
    return count;
  }

  // Rows follow each other without gaps. Strides may be absent; those of dims of one element are
  // ignored.
  bool is_contiguous() const {
    std::int64_t expected = 1;
    for (int dim = rank - 1; dim >= 0 && strides != nullptr; --dim) {
      if (shape[dim] != 1 && strides[dim] != expected) {
        return is_empty();
      }
      expected *= shape[dim];
    }
    return true;
  }

  // Address of an element, by its offset in elements.
  const void* at(std::int64_t offset) const {
    return static_cast<const char*>(data) +
           offset * static_cast<std::int64_t>(element_bytes(element));
  }
  void* at(std::int64_t offset) {
    return static_cast<char*>(data) + offset * static_cast<std::int64_t>(element_bytes(element));
  }
};

}  // namespace gt
