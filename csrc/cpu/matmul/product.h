// One matrix product, as matmul.cpp cuts it out of a batch: pointers and strides only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/scratch.h"
#include "cpu/matmul/matmul_path.h"

namespace gt {

// Rows of out and residual are contiguous. Strides count elements.
struct Product {
  std::int64_t m, n, k;
  PanelSource a;    // across: stride of rows; along: stride of k
  PanelSource b;    // across: stride of columns
  Element element;  // of out
  char* out;
  std::int64_t out_stride;
  const char* bias;
  const char* residual;
  std::int64_t residual_stride;
  Epilogue epilogue;
  int threads;

  bool is_plain() const {
    return epilogue.activation == Activation::kNone && epilogue.scale == 1 && bias == nullptr &&
           residual == nullptr;
  }

  // The product of rows or columns [begin, end) alone, for one thread.
  Product cut(bool by_rows, std::int64_t begin, std::int64_t end) const {
    const auto bytes = static_cast<std::int64_t>(element_bytes(element));
    const auto from = [begin](const PanelSource& source) {
      const auto each = static_cast<std::int64_t>(element_bytes(source.element));
      return static_cast<const char*>(source.data) + begin * source.across * each;
    };
    Product part = *this;
    part.threads = 1;
    if (by_rows) {
      part.m = std::min(end, m) - begin;
      part.a.data = from(a);
      part.out += begin * out_stride * bytes;
      part.residual += residual == nullptr ? 0 : begin * residual_stride * bytes;
    } else {
      part.n = std::min(end, n) - begin;
      part.b.data = from(b);
      part.out += begin * bytes;
      part.bias += bias == nullptr ? 0 : begin * bytes;
      part.residual += residual == nullptr ? 0 : begin * bytes;
    }
    return part;
  }
};

inline std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Operand that is packed whole before the multiplication.
enum class Kept { kA, kB };

// Memory for the kept operand, and for sums that are not in the result itself.
struct PackMemory {
  Scratch panels, sums;
};

// True where sums accumulate in the result itself: not where the residual is there.
inline bool sums_in_out(const Product& product) {
  return product.element != Element::kBfloat16 && product.residual != product.out;
}

// True where an operand can stay packed for the next product.
bool is_one_block(const Product& product, Kept kept, std::int64_t depth_step);

// T is the type of the sums. is_packed: the previous product has packed the kept operand, which was
// one block.
template <class T>
void multiply_packed(const MatmulPath<T>& path, const Product& product, Kept kept,
                     PackMemory& memory, bool is_packed);

// Multiplies at most kSkinnyRowsMax rows by a b with contiguous rows or columns.
template <class T>
void multiply_skinny(const MatmulPath<T>& path, const Product& product, Scratch& scratch);

// Applies the epilogue to columns [begin, end) of one row; `sums` begins at column `begin`.
template <class T>
void finish_columns(const MatmulPath<T>& path, const Product& product, std::int64_t row,
                    std::int64_t begin, std::int64_t end, const T* sums) {
  const auto bytes = static_cast<std::int64_t>(element_bytes(product.element));
  const auto place = [&](auto* from, std::int64_t stride) {
    return from == nullptr ? nullptr : from + (row * stride + begin) * bytes;
  };
  path.finish(product.epilogue, product.element, end - begin, sums, place(product.bias, 0),
              place(product.residual, product.residual_stride),
              place(product.out, product.out_stride));
}

}  // namespace gt
