// Large products: both operands are packed into panels block by block, and tiles of the result are
// made from the panels. Each sum runs over k in one order, whoever makes it.
#include <algorithm>
#include <cstring>

#include "core/pool.h"
#include "cpu/matmul/product.h"

namespace gt {
namespace {

constexpr std::int64_t kDepthUnits = 320;  // a panel of b stays in the first cache
constexpr std::int64_t kRowsBlock = 1152;  // what is packed at once: multiples of every tile
constexpr std::int64_t kColumnsBlock = 1152;
constexpr std::int64_t kTaskRows = 144;  // a task's part of a stays in the second cache
constexpr std::int64_t kTaskColumns = 192;
constexpr std::int64_t kPackTask = 8;  // panels that one task packs

// Below this a call of another thread costs more than it brings.
constexpr std::int64_t kWorkPerThread = 96LL * 96 * 96;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Rows [0, m) and columns [0, n) of one block of the result, which starts at (row, column).
template <class T>
class Block {
 public:
  Block(const MatmulPath<T>& path, const Product& product, Scratch& scratch, std::int64_t row,
        std::int64_t column)
      : path_(path),
        product_(product),
        row_(row),
        column_(column),
        m_(std::min(kRowsBlock, product.m - row)),
        n_(std::min(kColumnsBlock, product.n - column)),
        row_panels_(ceil_divide(m_, path.rows)),
        column_panels_(ceil_divide(n_, path.columns)),
        threads_(static_cast<int>(
            std::clamp<std::int64_t>(m_ * n_ * product.k / kWorkPerThread, 1, product.threads))),
        depth_block_(kDepthUnits * path.depth_step),
        depth_max_(std::min(depth_block_, product.k)),
        ld_(column_panels_ * path.columns),
        in_out_(product.element != Element::kBfloat16 && product.residual != product.out) {
    const std::int64_t units = ceil_divide(depth_max_, path.depth_step);
    a_panel_bytes_ = units * path.rows * path.step_bytes;
    b_panel_bytes_ = units * path.columns * path.step_bytes;
    const std::int64_t a_bytes = ceil_divide(row_panels_ * a_panel_bytes_, 64) * 64;
    const std::int64_t b_bytes = ceil_divide(column_panels_ * b_panel_bytes_, 64) * 64;
    const std::int64_t sums = in_out_ ? 0 : row_panels_ * path.rows * ld_;
    char* memory =
        scratch.numbers<char>(a_bytes + b_bytes + sums * static_cast<std::int64_t>(sizeof(T)));
    a_panels_ = memory;
    b_panels_ = memory + a_bytes;
    sums_ = reinterpret_cast<T*>(memory + a_bytes + b_bytes);
  }

  void multiply() {
    for (std::int64_t begin = 0; begin < product_.k; begin += depth_block_) {
      const std::int64_t depth = std::min(depth_block_, product_.k - begin);
      pack(begin, depth);
      const std::int64_t across = ceil_divide(n_, kTaskColumns);
      const std::int64_t down = ceil_divide(m_, kTaskRows);
      run_tasks(across * down, threads_, [&](std::int64_t task) {
        make_part(task / down * kTaskColumns, task % down * kTaskRows, begin, depth);
      });
    }
  }

 private:
  void pack(std::int64_t begin, std::int64_t depth) {
    const std::int64_t b_tasks = ceil_divide(column_panels_, kPackTask);
    const std::int64_t a_tasks = ceil_divide(row_panels_, kPackTask);
    run_tasks(a_tasks + b_tasks, threads_, [&](std::int64_t task) {
      if (task < b_tasks) {
        pack_some(product_.b, path_.columns, column_, n_, task, begin, depth, b_panels_,
                  b_panel_bytes_);
      } else {
        pack_some(product_.a, path_.rows, row_, m_, task - b_tasks, begin, depth, a_panels_,
                  a_panel_bytes_);
      }
    });
  }

  void pack_some(const PanelSource& source, int width, std::int64_t first, std::int64_t count,
                 std::int64_t task, std::int64_t begin, std::int64_t depth, char* panels,
                 std::int64_t panel_bytes) const {
    const auto bytes = static_cast<std::int64_t>(element_bytes(source.element));
    const std::int64_t end = std::min((task + 1) * kPackTask, ceil_divide(count, width));
    for (std::int64_t panel = task * kPackTask; panel < end; ++panel) {
      const std::int64_t at = panel * width;
      PanelSource part = source;
      part.data = static_cast<const char*>(source.data) +
                  ((first + at) * source.across + begin * source.along) * bytes;
      path_.pack(part, width, static_cast<int>(std::min<std::int64_t>(width, count - at)), depth,
                 panels + panel * panel_bytes);
    }
  }

  void make_part(std::int64_t column, std::int64_t row, std::int64_t begin, std::int64_t depth) {
    const std::int64_t column_end = std::min(column + kTaskColumns, n_);
    const std::int64_t row_end = std::min(row + kTaskRows, m_);
    const bool add = begin > 0;
    for (std::int64_t j = column; j < column_end; j += path_.columns) {
      for (std::int64_t i = row; i < row_end; i += path_.rows) {
        make_tile(i, j, depth, add);
      }
    }
    if (begin + depth < product_.k || (in_out_ && product_.is_plain())) {
      return;
    }
    for (std::int64_t i = row; i < row_end; ++i) {
      finish_columns(path_, product_, row_ + i, column_ + column, column_ + column_end,
                     sums_at(i, column));
    }
  }

  T* sums_at(std::int64_t row, std::int64_t column) const {
    if (in_out_) {
      return reinterpret_cast<T*>(product_.out) + (row_ + row) * product_.out_stride + column_ +
             column;
    }
    return sums_ + row * ld_ + column;
  }

  void make_tile(std::int64_t row, std::int64_t column, std::int64_t depth, bool add) {
    const char* a = a_panels_ + row / path_.rows * a_panel_bytes_;
    const char* b = b_panels_ + column / path_.columns * b_panel_bytes_;
    T* to = sums_at(row, column);
    const std::int64_t rows = std::min<std::int64_t>(path_.rows, m_ - row);
    const std::int64_t columns = std::min<std::int64_t>(path_.columns, n_ - column);
    if (!in_out_ || (rows == path_.rows && columns == path_.columns)) {
      path_.multiply(depth, a, b, to, in_out_ ? product_.out_stride : ld_, add);
      return;
    }
    constexpr std::int64_t kTileMax = 12 * 32;
    alignas(64) T tile[kTileMax];
    path_.multiply(depth, a, b, tile, path_.columns, false);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        T& sum = to[i * product_.out_stride + j];
        sum = add ? sum + tile[i * path_.columns + j] : tile[i * path_.columns + j];
      }
    }
  }

  const MatmulPath<T>& path_;
  const Product& product_;
  const std::int64_t row_, column_, m_, n_, row_panels_, column_panels_;
  const int threads_;
  const std::int64_t depth_block_, depth_max_, ld_;
  const bool in_out_;  // sums are kept where the result goes: not if what is added stands there
  std::int64_t a_panel_bytes_, b_panel_bytes_;
  char* a_panels_;
  char* b_panels_;
  T* sums_;
};

}  // namespace

template <class T>
void multiply_packed(const MatmulPath<T>& path, const Product& product, Scratch& scratch) {
  for (std::int64_t column = 0; column < product.n; column += kColumnsBlock) {
    for (std::int64_t row = 0; row < product.m; row += kRowsBlock) {
      Block<T>(path, product, scratch, row, column).multiply();
    }
  }
}

template void multiply_packed(const MatmulPath<float>&, const Product&, Scratch&);
template void multiply_packed(const MatmulPath<double>&, const Product&, Scratch&);

}  // namespace gt
