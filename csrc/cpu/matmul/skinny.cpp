// Few rows times a large matrix: b is read once and not copied; threads divide its columns.
#include <algorithm>

#include "core/pool.h"
#include "cpu/matmul/product.h"

namespace gt {
namespace {

constexpr std::int64_t kTaskNumbers = 1 << 16;  // of b, in a task: about 10 us of reading
constexpr std::int64_t kColumnsStep = 64;       // of a task: a multiple of every vector
constexpr std::int64_t kSumsMax = 8192;         // of a task: they stay in the first-level cache

// Copies a to contiguous rows of T.
template <class T>
void copy_rows(const MatmulPath<T>& path, const Product& product, T* to) {
  PanelSource row = product.a;
  const auto bytes = static_cast<std::int64_t>(element_bytes(row.element));
  row.across = product.a.along;  // a row is one wide step of a panel
  row.along = 0;
  for (std::int64_t i = 0; i < product.m; ++i) {
    row.data = static_cast<const char*>(product.a.data) + i * product.a.across * bytes;
    path.pack(row, static_cast<int>(product.k), static_cast<int>(product.k), 1, to + i * product.k);
  }
}

// Columns of a task: as many as possible where rows of b are contiguous, because narrow parts of
// rows are far from each other.
std::int64_t task_columns(const Product& product) {
  const std::int64_t most = kSumsMax / product.m / kColumnsStep * kColumnsStep;
  const std::int64_t wanted = product.b.across == 1
                                  ? (product.n + product.threads - 1) / product.threads
                                  : kTaskNumbers / std::max<std::int64_t>(product.k, 1);
  const std::int64_t whole = (wanted + kColumnsStep - 1) / kColumnsStep * kColumnsStep;
  return std::clamp(whole, kColumnsStep, most);
}

}  // namespace

template <class T>
void multiply_skinny(const MatmulPath<T>& path, const Product& product, Scratch& scratch) {
  T* x = scratch.numbers<T>(product.m * (product.k + product.n));
  T* sums = x + product.m * product.k;
  copy_rows(path, product, x);
  const std::int64_t width = task_columns(product);
  const bool by_rows = product.b.across == 1;
  const auto multiply = by_rows ? path.skinny_rows : path.skinny_columns;
  if (!by_rows && path.narrow != nullptr) {
    path.narrow(product.m * product.k, x);
  }
  const int m = static_cast<int>(product.m);
  run_tasks((product.n + width - 1) / width, product.threads, [&](std::int64_t task) {
    const std::int64_t begin = task * width;
    const std::int64_t end = std::min(begin + width, product.n);
    multiply(m, product.k, x, product.b, begin, end, sums, product.n);
    for (std::int64_t row = 0; row < product.m; ++row) {
      finish_columns(path, product, row, begin, end, sums + row * product.n + begin);
    }
  });
}

template void multiply_skinny(const MatmulPath<float>&, const Product&, Scratch&);
template void multiply_skinny(const MatmulPath<double>&, const Product&, Scratch&);

}  // namespace gt
