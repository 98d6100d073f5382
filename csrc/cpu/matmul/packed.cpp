// Large products: both operands are packed into panels, and parts of the result are made from the
// panels, each whole by one thread. Each sum runs over k in one order, whoever makes it.
#include <algorithm>
#include <cstring>

#include "core/pool.h"
#include "cpu/matmul/product.h"

namespace gt {
namespace {

constexpr std::int64_t kDepthUnits = 320;  // a panel of b stays in the first cache
constexpr std::int64_t kDepthBlocks = 4;   // that are packed before parts are made of them
constexpr std::int64_t kRowsBlock = 1152;  // what is packed at once: multiples of every tile
constexpr std::int64_t kColumnsBlock = 1152;
constexpr std::int64_t kPartRows = 144;           // a part's share of a stays in the second cache
constexpr std::int64_t kPartPanels = 6;           // of b, at most
constexpr std::int64_t kPackNumbers = 32 * 1024;  // that one task packs, or more
// Parts for a thread, so that none waits long for the last one.
constexpr std::int64_t kPartsPerThread = 12;

// Panels of one operand, block after block of depth.
struct Panels {
  const PanelSource* source;
  std::int64_t first;  // row or column of the operand that the first panel begins with
  std::int64_t count;  // rows or columns in all
  int width;
  std::int64_t panels;
  std::int64_t panel_bytes;
  std::int64_t together;  // panels that one task packs
  char* memory;

  char* at(std::int64_t block, std::int64_t panel) const {
    return memory + (block * panels + panel) * panel_bytes;
  }
  std::int64_t tasks() const { return ceil_divide(panels, together); }
  std::int64_t bytes(std::int64_t blocks) const { return blocks * panels * panel_bytes; }
};

// Rows [0, m) and columns [0, n) of one block of the result, which starts at (row, column).
template <class T>
class Block {
 public:
  Block(const MatmulPath<T>& path, const Product& product, PackMemory& memory, std::int64_t row,
        std::int64_t column)
      : path_(path),
        product_(product),
        row_(row),
        column_(column),
        m_(std::min(kRowsBlock, product.m - row)),
        n_(std::min(kColumnsBlock, product.n - column)),
        depth_block_(kDepthUnits * path.depth_step),
        a_(panels_of(product.a, row, m_, path.rows)),
        b_(panels_of(product.b, column, n_, path.columns)),
        ld_(b_.panels * path.columns),
        in_out_(product.element != Element::kBfloat16 && product.residual != product.out) {
    const std::int64_t blocks = std::min(kDepthBlocks, ceil_divide(product.k, depth_block_));
    a_.memory = memory.a.numbers<char>(a_.bytes(blocks));
    b_.memory = memory.b.numbers<char>(b_.bytes(blocks));
    sums_ = in_out_ ? nullptr : memory.sums.numbers<T>(a_.panels * path.rows * ld_);
  }

  void multiply(Packed packed) {
    const std::int64_t down = ceil_divide(m_, kPartRows);
    std::int64_t panels = kPartPanels;
    while (product_.threads > 1 && panels > 1 &&
           down * ceil_divide(b_.panels, panels) < kPartsPerThread * product_.threads) {
      panels /= 2;
    }
    const std::int64_t across = ceil_divide(b_.panels, panels);
    for (std::int64_t begin = 0; begin < product_.k; begin += kDepthBlocks * depth_block_) {
      const std::int64_t depth = std::min(kDepthBlocks * depth_block_, product_.k - begin);
      pack(packed == Packed::kA ? 0 : a_.tasks(), packed == Packed::kB ? 0 : b_.tasks(), begin,
           depth);
      run_tasks(across * down, product_.threads, [&](std::int64_t task) {
        make_part(task % across * panels, panels, task / across * kPartRows, begin, depth);
      });
    }
  }

 private:
  Panels panels_of(const PanelSource& source, std::int64_t first, std::int64_t count,
                   int width) const {
    const std::int64_t depth = std::min(depth_block_, product_.k);
    const std::int64_t units = ceil_divide(depth, path_.depth_step);
    return {&source,
            first,
            count,
            width,
            ceil_divide(count, width),
            units * width * path_.step_bytes,
            std::max<std::int64_t>(kPackNumbers / (depth * width), 1),
            nullptr};
  }

  void pack(std::int64_t a_tasks, std::int64_t b_tasks, std::int64_t begin,
            std::int64_t depth) const {
    const std::int64_t tasks = a_tasks + b_tasks;
    run_tasks(ceil_divide(depth, depth_block_) * tasks, product_.threads, [&](std::int64_t task) {
      const std::int64_t block = task / tasks;
      const std::int64_t from = block * depth_block_;
      const std::int64_t steps = std::min(depth_block_, depth - from);
      task %= tasks;
      if (task < b_tasks) {
        pack_some(b_, block, task, begin + from, steps);
      } else {
        pack_some(a_, block, task - b_tasks, begin + from, steps);
      }
    });
  }

  void pack_some(const Panels& of, std::int64_t block, std::int64_t task, std::int64_t begin,
                 std::int64_t depth) const {
    const PanelSource& source = *of.source;
    const auto bytes = static_cast<std::int64_t>(element_bytes(source.element));
    const std::int64_t end = std::min((task + 1) * of.together, of.panels);
    for (std::int64_t panel = task * of.together; panel < end; ++panel) {
      const std::int64_t at = panel * of.width;
      PanelSource part = source;
      part.data = static_cast<const char*>(source.data) +
                  ((of.first + at) * source.across + begin * source.along) * bytes;
      path_.pack(part, of.width, static_cast<int>(std::min<std::int64_t>(of.width, of.count - at)),
                 depth, of.at(block, panel));
    }
  }

  // Rows from `row` on and columns of some panels, over what is packed of the depth.
  void make_part(std::int64_t panel, std::int64_t panels, std::int64_t row, std::int64_t begin,
                 std::int64_t depth) const {
    const std::int64_t column = panel * path_.columns;
    const std::int64_t column_end = std::min(column + panels * path_.columns, n_);
    const std::int64_t row_end = std::min(row + kPartRows, m_);
    for (std::int64_t done = 0; done < depth; done += depth_block_) {
      const std::int64_t steps = std::min(depth_block_, depth - done);
      for (std::int64_t j = column; j < column_end; j += path_.columns) {
        for (std::int64_t i = row; i < row_end; i += path_.rows) {
          make_tile(i, j, done / depth_block_, steps, begin + done > 0);
        }
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

  void make_tile(std::int64_t row, std::int64_t column, std::int64_t block, std::int64_t depth,
                 bool add) const {
    const char* a = a_.at(block, row / path_.rows);
    const char* b = b_.at(block, column / path_.columns);
    T* to = sums_at(row, column);
    const int rows = static_cast<int>(std::min<std::int64_t>(path_.rows, m_ - row));
    const int columns = static_cast<int>(std::min<std::int64_t>(path_.columns, n_ - column));
    if (!in_out_ || (rows == path_.rows && columns == path_.columns)) {
      path_.multiply(depth, rows, columns, a, b, to, in_out_ ? product_.out_stride : ld_, add);
      return;
    }
    constexpr std::int64_t kTileMax = 12 * 32;
    alignas(64) T tile[kTileMax];
    path_.multiply(depth, rows, columns, a, b, tile, path_.columns, false);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        T& sum = to[i * product_.out_stride + j];
        sum = add ? sum + tile[i * path_.columns + j] : tile[i * path_.columns + j];
      }
    }
  }

  const MatmulPath<T>& path_;
  const Product& product_;
  const std::int64_t row_, column_, m_, n_;
  const std::int64_t depth_block_;
  Panels a_, b_;
  const std::int64_t ld_;
  const bool in_out_;  // sums are kept where the result goes: not if what is added stands there
  T* sums_;
};

}  // namespace

bool is_one_block(const Product& product, std::int64_t depth_step) {
  return product.m <= kRowsBlock && product.n <= kColumnsBlock &&
         product.k <= kDepthBlocks * kDepthUnits * depth_step;
}

template <class T>
void multiply_packed(const MatmulPath<T>& path, const Product& product, PackMemory& memory,
                     Packed packed) {
  for (std::int64_t column = 0; column < product.n; column += kColumnsBlock) {
    for (std::int64_t row = 0; row < product.m; row += kRowsBlock) {
      Block<T>(path, product, memory, row, column).multiply(packed);
    }
  }
}

template void multiply_packed(const MatmulPath<float>&, const Product&, PackMemory&, Packed);
template void multiply_packed(const MatmulPath<double>&, const Product&, PackMemory&, Packed);

}  // namespace gt
