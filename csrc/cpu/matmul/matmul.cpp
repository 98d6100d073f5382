// Cuts a batch into products and chooses how each is made.
#include "cpu/matmul/matmul.h"

#include <algorithm>

#include "core/pool.h"
#include "cpu/matmul/product.h"

namespace gt {
namespace {

// Products below this many multiplications run side by side, larger ones with all threads each.
constexpr std::int64_t kSideBySide = 256LL * 256 * 256;
constexpr std::int64_t kOneThread = 64LL * 64 * 64;  // of a whole batch

// Where matrix `index` of the result's batch starts in an operand, in elements.
std::int64_t batch_offset(const TensorView& out, const TensorView& operand, std::int64_t index) {
  std::int64_t offset = 0;
  for (int dim = 3; dim <= out.rank; ++dim) {
    const std::int64_t place = index % out.size(-dim);
    index /= out.size(-dim);
    if (dim <= operand.rank && operand.size(-dim) != 1) {
      offset += place * operand.stride(-dim);
    }
  }
  return offset;
}

std::int64_t batch_size(const TensorView& out) {
  std::int64_t count = 1;
  for (int dim = 3; dim <= out.rank; ++dim) {
    count *= out.size(-dim);
  }
  return count;
}

Product product_at(const MatmulCall& call, std::int64_t index, int threads) {
  const TensorView &out = call.out, &a = call.a, &b = call.b;
  const auto place = [&](const TensorView& operand) {
    return static_cast<char*>(const_cast<void*>(operand.at(batch_offset(out, operand, index))));
  };
  return {out.size(-2),
          out.size(-1),
          a.size(-1),
          {place(a), a.element, a.stride(-2), a.stride(-1)},
          {place(b), b.element, b.stride(-1), b.stride(-2)},
          out.element,
          place(out),
          out.stride(-2),
          call.bias == nullptr ? nullptr : static_cast<const char*>(call.bias->data),
          call.residual == nullptr ? nullptr : place(*call.residual),
          call.residual == nullptr ? 0 : call.residual->stride(-2),
          call.epilogue,
          threads};
}

// Sums over nothing.
template <class T>
void finish_zeros(const MatmulPath<T>& path, const Product& product, Scratch& scratch) {
  T* zeros = scratch.numbers<T>(product.n);
  std::fill_n(zeros, product.n, T{});
  for (std::int64_t row = 0; row < product.m; ++row) {
    finish_columns(path, product, row, 0, product.n, zeros);
  }
}

// Reading b without packing it pays where it is used for few rows.
bool is_skinny(const Product& product) {
  return product.m <= kSkinnyRowsMax && (product.b.across == 1 || product.b.along == 1);
}

// Args: plain, the paths whose panels hold T; packed, those for the operands' own element.
template <class T>
void multiply(const PathTable<MatmulPath<T>>& plain, const PathTable<MatmulPath<T>>& packed,
              const Product& product) {
  static thread_local Scratch scratch;
  if (product.k == 0) {
    finish_zeros(of_path(plain), product, scratch);
  } else if (is_skinny(product)) {
    MatmulPath<T> path = of_path(plain);
    path.skinny_columns = of_path(packed).skinny_columns;  // it reads b as it is stored
    path.narrow = of_path(packed).narrow;
    multiply_skinny(path, product, scratch);
  } else {
    multiply_packed(of_path(packed), product, scratch);
  }
}

void multiply(const Product& product) {
  if (product.element == Element::kFloat64) {
    return multiply(kMatmulF64, kMatmulF64, product);
  }
  const bool narrow = product.element == Element::kBfloat16;
  multiply(kMatmulF32, narrow ? kMatmulBf16 : kMatmulF32, product);
}

}  // namespace

void matmul(const MatmulCall& call) {
  if (call.out.is_empty()) {
    return;
  }
  const std::int64_t count = batch_size(call.out);
  const std::int64_t work =
      call.out.size(-2) * call.out.size(-1) * std::max<std::int64_t>(call.a.size(-1), 1);
  if (count == 1 || work >= kSideBySide) {
    for (std::int64_t index = 0; index < count; ++index) {
      multiply(product_at(call, index, call.threads));
    }
    return;
  }
  const int threads = count * work < kOneThread ? 1 : call.threads;
  run_tasks(count, threads, [&](std::int64_t index) { multiply(product_at(call, index, 1)); });
}

}  // namespace gt
