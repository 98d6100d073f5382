// Cuts a batch into products and chooses the method for each.
#include "cpu/matmul/matmul.h"

#include <algorithm>
#include <atomic>

#include "core/pool.h"
#include "cpu/matmul/product.h"

namespace gt {
namespace {

// Products below this many multiplications run in parallel; larger ones run one by one on all
// threads.
constexpr std::int64_t kSideBySide = 256LL * 256 * 256;
constexpr std::int64_t kOneThread = 64LL * 64 * 64;  // multiplications of a whole batch

// Multiplications that are worth waking another thread.
constexpr std::int64_t kWorkPerThread = 64LL * 128 * 128;
// Limits for threads that each pack the shared operand: its numbers, and the ratio of its rows or
// columns times the threads to the rows or columns that are cut.
constexpr std::int64_t kPackedApart = 1024LL * 1024;
constexpr std::int64_t kSharesApart = 4;
constexpr std::int64_t kRowPartsApart = 2;
constexpr std::int64_t kColumnPartsApart = 8;

// Offset, in elements, of matrix `index` of the result's batch in an operand.
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

// Writes the epilogue of sums over an empty depth.
template <class T>
void finish_zeros(const MatmulPath<T>& path, const Product& product, Scratch& scratch) {
  T* zeros = scratch.numbers<T>(product.n);
  std::fill_n(zeros, product.n, T{});
  for (std::int64_t row = 0; row < product.m; ++row) {
    finish_columns(path, product, row, 0, product.n, zeros);
  }
}

// Reading b without packing it pays where few rows use it.
bool is_skinny(const Product& product) {
  return product.m <= kSkinnyRowsMax && (product.b.across == 1 || product.b.along == 1);
}

// The smaller operand is packed whole; the larger one is cut into parts.
Kept kept_of(const Product& product) { return product.m > product.n ? Kept::kB : Kept::kA; }

// True where threads are faster with products of their own: packing the shared operand once in each
// thread costs less than fetching the packed copy from another core, unless there are many threads.
bool is_apart(const Product& product, std::int64_t depth_step) {
  const std::int64_t shared = std::min(product.m, product.n);
  const std::int64_t cut = std::max(product.m, product.n);
  return product.threads > 1 && shared * product.threads <= kSharesApart * cut &&
         shared * product.k < kPackedApart && is_one_block(product, kept_of(product), depth_step);
}

// Cuts several parts for each thread, so that a thread that starts late leaves its parts to the
// others.
template <class T>
void multiply_apart(const MatmulPath<T>& path, const Product& product) {
  static std::atomic<std::uint64_t> calls{0};
  const std::uint64_t this_call = calls.fetch_add(1, std::memory_order_relaxed) + 1;
  const Kept kept = kept_of(product);
  const bool by_rows = kept == Kept::kB;
  const std::int64_t unit = by_rows ? path.rows : path.columns;
  const std::int64_t units = ceil_divide(by_rows ? product.m : product.n, unit);
  const std::int64_t each = by_rows ? kRowPartsApart : kColumnPartsApart;
  const std::int64_t parts = std::min<std::int64_t>(product.threads * each, units);
  run_tasks(parts, product.threads, [&](std::int64_t part) {
    static thread_local PackMemory memory;
    static thread_local std::uint64_t packed_for = 0;
    const std::int64_t begin = units * part / parts * unit;
    const std::int64_t end = units * (part + 1) / parts * unit;
    multiply_packed(path, product.cut(by_rows, begin, end), kept, memory, packed_for == this_call);
    packed_for = this_call;
  });
}

// Args: plain, the paths whose panels hold T; packed, those for the operands' own element.
template <class T>
void multiply(const PathTable<MatmulPath<T>>& plain, const PathTable<MatmulPath<T>>& packed,
              Product product) {
  static thread_local Scratch scratch;
  if (product.k == 0) {
    return finish_zeros(of_path(plain), product, scratch);
  }
  if (is_skinny(product)) {
    MatmulPath<T> path = of_path(plain);
    path.skinny_columns = of_path(packed).skinny_columns;  // it reads b as it is stored
    path.narrow = of_path(packed).narrow;
    return multiply_skinny(path, product, scratch);
  }
  product.threads = static_cast<int>(std::clamp<std::int64_t>(
      product.m * product.n * product.k / kWorkPerThread, 1, product.threads));
  if (is_apart(product, of_path(packed).depth_step)) {
    multiply_apart(of_path(packed), product);
  } else {
    static thread_local PackMemory memory;
    multiply_packed(of_path(packed), product, kept_of(product), memory, false);
  }
}

void multiply(const Product& product) {
  if (product.element == Element::kFloat64) {
    return multiply(kMatmulF64, kMatmulF64, product);
  }
  const bool narrow =
      product.a.element == Element::kBfloat16 && product.b.element == Element::kBfloat16;
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
