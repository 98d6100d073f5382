// Large products: both operands are packed into panels. One is packed whole and kept. The other is
// packed in parts that stay in the second-level cache, each by the thread that computes its part of
// the result. Each sum runs over k in one order on every thread.
#include <algorithm>
#include <cstring>

#include "core/pool.h"
#include "cpu/matmul/product.h"

namespace gt {
namespace {

constexpr std::int64_t kDepthUnits = 320;
constexpr std::int64_t kDepthBlocks = 4;  // kept at a time, before parts use them
constexpr std::int64_t kBlock = 1152;  // rows or columns kept at a time: whole panels of any width
constexpr std::int64_t kPackNumbers = 32 * 1024;  // packed by one task, or more
// Maximum and minimum rows or columns of a part of the operand that is not kept.
constexpr std::int64_t kPartMost = 144;
constexpr std::int64_t kPartLeast = 48;
// Parts for each thread, so that no thread waits long for the last one.
constexpr std::int64_t kPartsPerThread = 4;

// One operand as panels.
template <class T>
class Panels {
 public:
  // Rows or columns [first, first + count) of the operand.
  Panels(const MatmulPath<T>& path, const PanelSource& source, int width, std::int64_t first,
         std::int64_t count)
      : path_(path), source_(source), width_(width), first_(first), count_(count) {}

  int width() const { return width_; }
  std::int64_t panels() const { return ceil_divide(count_, width_); }
  std::int64_t bytes(std::int64_t depth) const {
    return ceil_divide(depth, path_.depth_step) * width_ * path_.step_bytes;
  }
  int numbers(std::int64_t panel) const {
    return static_cast<int>(std::min<std::int64_t>(width_, count_ - panel * width_));
  }

  void pack(std::int64_t panel, std::int64_t begin, std::int64_t depth, char* to) const {
    PanelSource part = source_;
    part.data = static_cast<const char*>(part.data) +
                ((first_ + panel * width_) * part.across + begin * part.along) *
                    static_cast<std::int64_t>(element_bytes(part.element));
    path_.pack(part, width_, numbers(panel), depth, to);
  }

 private:
  const MatmulPath<T>& path_;
  const PanelSource& source_;
  const int width_;
  const std::int64_t first_, count_;
};

// Prefetches the memory that a tile is written to while the tile is multiplied.
template <class T>
void fetch_to_write(const T* first, int count) {
  constexpr int kLine = 64 / sizeof(T);
  for (int at = 0; at < count; at += kLine) {
    __builtin_prefetch(first + at, 1);
  }
}

// Sums in the coordinates of a block: `row` and `column` are those of the first sum.
template <class T>
struct Sums {
  T* first;
  std::int64_t ld;
  std::int64_t row, column;

  T* at(std::int64_t to_row, std::int64_t to_column) const {
    return first + (to_row - row) * ld + to_column - column;
  }
};

// Rows [0, m) and columns [0, n) of one block of the result, which starts at (row, column).
template <class T>
class Block {
 public:
  Block(const MatmulPath<T>& path, const Product& product, Kept kept, PackMemory& memory,
        std::int64_t row, std::int64_t column, std::int64_t m, std::int64_t n)
      : path_(path),
        product_(product),
        kept_(kept),
        row_(row),
        column_(column),
        m_(m),
        n_(n),
        a_(path, product.a, path.rows, row, m),
        b_(path, product.b, path.columns, column, n),
        depth_block_(kDepthUnits * path.depth_step),
        in_out_(sums_in_out(product)) {
    const std::int64_t at_once = kDepthBlocks * depth_block_;
    const std::int64_t depth = std::min(product.k, at_once);
    const Panels<T>& whole = kept_panels();
    // Each block of depth starts its own group of panels.
    const std::int64_t bytes = ceil_divide(depth, depth_block_) *
                               whole.bytes(std::min(depth, depth_block_)) * whole.panels();
    panels_ = memory.panels.numbers<char>(bytes);
    const std::int64_t ld = b_.panels() * path.columns;
    if (in_out_) {
      kept_sums_ = {out_at(0, 0), product.out_stride, 0, 0};
    } else if (product.k > at_once) {
      kept_sums_ = {memory.sums.numbers<T>(a_.panels() * path.rows * ld), ld, 0, 0};
    }
  }

  void multiply(bool is_packed) {
    const Panels<T>& parted = parted_panels();
    const std::int64_t panels = panels_of_part(parted);
    for (std::int64_t begin = 0; begin < product_.k; begin += kDepthBlocks * depth_block_) {
      const std::int64_t depth = std::min(kDepthBlocks * depth_block_, product_.k - begin);
      if (!is_packed) {
        pack_kept(begin, depth);
      }
      run_tasks(ceil_divide(parted.panels(), panels), product_.threads, [&](std::int64_t task) {
        const std::int64_t end = std::min((task + 1) * panels, parted.panels());
        make_part(task * panels, end, begin, depth);
      });
    }
  }

 private:
  const Panels<T>& kept_panels() const { return kept_ == Kept::kA ? a_ : b_; }
  const Panels<T>& parted_panels() const { return kept_ == Kept::kA ? b_ : a_; }

  std::int64_t panels_of_part(const Panels<T>& parted) const {
    const std::int64_t parts = product_.threads > 1 ? product_.threads * kPartsPerThread : 1;
    const std::int64_t least = ceil_divide(kPartLeast, parted.width());
    const std::int64_t most = kPartMost / parted.width();
    return std::clamp(ceil_divide(parted.panels(), parts), std::min(least, most), most);
  }

  // Address of a panel of the kept operand, in a block of depth that begins at `done` with `steps`.
  char* kept_at(std::int64_t done, std::int64_t steps, std::int64_t panel) const {
    const Panels<T>& whole = kept_panels();
    return panels_ + whole.bytes(done) * whole.panels() + whole.bytes(steps) * panel;
  }

  void pack_kept(std::int64_t begin, std::int64_t depth) const {
    const Panels<T>& whole = kept_panels();
    const std::int64_t together =
        std::max<std::int64_t>(kPackNumbers / (std::min(depth, depth_block_) * whole.width()), 1);
    const std::int64_t tasks = ceil_divide(whole.panels(), together);
    run_tasks(ceil_divide(depth, depth_block_) * tasks, product_.threads, [&](std::int64_t task) {
      const std::int64_t done = task / tasks * depth_block_;
      const std::int64_t steps = std::min(depth_block_, depth - done);
      const std::int64_t first = task % tasks * together;
      const std::int64_t end = std::min(first + together, whole.panels());
      for (std::int64_t panel = first; panel < end; ++panel) {
        whole.pack(panel, begin + done, steps, kept_at(done, steps, panel));
      }
    });
  }

  T* out_at(std::int64_t row, std::int64_t column) const {
    return reinterpret_cast<T*>(product_.out) + (row_ + row) * product_.out_stride + column_ +
           column;
  }

  // Memory of a part's sums: the block's, or the thread's own for a part finished in one go.
  Sums<T> sums_of(std::int64_t first, std::int64_t end) const {
    static thread_local Scratch scratch;
    if (kept_sums_.first != nullptr) {
      return kept_sums_;
    }
    const bool by_rows = kept_ == Kept::kB;
    const std::int64_t rows = (by_rows ? end - first : a_.panels()) * path_.rows;
    const std::int64_t ld = (by_rows ? b_.panels() : end - first) * path_.columns;
    return {scratch.numbers<T>(rows * ld), ld, by_rows ? first * path_.rows : 0,
            by_rows ? 0 : first * path_.columns};
  }

  // Multiplies panels [first, end) of the operand that is not kept by all kept panels.
  void make_part(std::int64_t first, std::int64_t end, std::int64_t begin,
                 std::int64_t depth) const {
    static thread_local Scratch scratch;
    const Sums<T> sums = sums_of(first, end);
    const Panels<T>& parted = parted_panels();
    char* memory =
        scratch.numbers<char>((end - first) * parted.bytes(std::min(depth, depth_block_)));
    for (std::int64_t done = 0; done < depth; done += depth_block_) {
      const std::int64_t steps = std::min(depth_block_, depth - done);
      const std::int64_t bytes = parted.bytes(steps);
      for (std::int64_t panel = first; panel < end; ++panel) {
        parted.pack(panel, begin + done, steps, memory + (panel - first) * bytes);
      }
      for (std::int64_t kept = 0; kept < kept_panels().panels(); ++kept) {
        const char* whole = kept_at(done, steps, kept);
        for (std::int64_t panel = first; panel < end; ++panel) {
          const char* part = memory + (panel - first) * bytes;
          if (kept_ == Kept::kA) {
            make_tile(sums, kept, panel, whole, part, steps, begin + done > 0);
          } else {
            make_tile(sums, panel, kept, part, whole, steps, begin + done > 0);
          }
        }
      }
    }
    if (begin + depth == product_.k && !(in_out_ && product_.is_plain())) {
      finish_part(sums, first * parted.width(), end * parted.width());
    }
  }

  void finish_part(const Sums<T>& sums, std::int64_t first, std::int64_t end) const {
    const bool by_rows = kept_ == Kept::kB;
    const std::int64_t column = by_rows ? 0 : first;
    const std::int64_t column_end = by_rows ? n_ : std::min(end, n_);
    const std::int64_t row_end = by_rows ? std::min(end, m_) : m_;
    for (std::int64_t row = by_rows ? first : 0; row < row_end; ++row) {
      finish_columns(path_, product_, row_ + row, column_ + column, column_ + column_end,
                     sums.at(row, column));
    }
  }

  void make_tile(const Sums<T>& sums, std::int64_t a_panel, std::int64_t b_panel, const char* a,
                 const char* b, std::int64_t depth, bool add) const {
    T* to = sums.at(a_panel * path_.rows, b_panel * path_.columns);
    const int rows = a_.numbers(a_panel);
    const int columns = b_.numbers(b_panel);
    for (int i = 0; i < rows; ++i) {
      fetch_to_write(to + i * sums.ld, columns);
    }
    if (!in_out_ || (rows == path_.rows && columns == path_.columns)) {
      path_.multiply(depth, rows, columns, a, b, to, sums.ld, add);
      return;
    }
    constexpr std::int64_t kTileMax = 12 * 32;
    alignas(64) T tile[kTileMax];
    path_.multiply(depth, rows, columns, a, b, tile, path_.columns, false);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        T& sum = to[i * sums.ld + j];
        sum = add ? sum + tile[i * path_.columns + j] : tile[i * path_.columns + j];
      }
    }
  }

  const MatmulPath<T>& path_;
  const Product& product_;
  const Kept kept_;
  const std::int64_t row_, column_, m_, n_;
  const Panels<T> a_, b_;
  const std::int64_t depth_block_;
  const bool in_out_;
  char* panels_;
  Sums<T> kept_sums_{};  // for the whole block; none where each part has its own
};

}  // namespace

bool is_one_block(const Product& product, Kept kept, std::int64_t depth_step) {
  return (kept == Kept::kA ? product.m : product.n) <= kBlock &&
         product.k <= kDepthBlocks * kDepthUnits * depth_step;
}

template <class T>
void multiply_packed(const MatmulPath<T>& path, const Product& product, Kept kept,
                     PackMemory& memory, bool is_packed) {
  const bool keeps_rows = kept == Kept::kA;
  const std::int64_t kept_size = keeps_rows ? product.m : product.n;
  const std::int64_t other_size = keeps_rows ? product.n : product.m;
  const bool stays = product.k <= kDepthBlocks * kDepthUnits * path.depth_step;
  // Sums of a whole block need memory, which bounds the block.
  const std::int64_t other_block = stays || sums_in_out(product) ? other_size : kBlock;
  for (std::int64_t first = 0; first < kept_size; first += kBlock) {
    for (std::int64_t other = 0; other < other_size; other += other_block) {
      const std::int64_t here = std::min(kBlock, kept_size - first);
      const std::int64_t across = std::min(other_block, other_size - other);
      Block<T> block(path, product, kept, memory, keeps_rows ? first : other,
                     keeps_rows ? other : first, keeps_rows ? here : across,
                     keeps_rows ? across : here);
      block.multiply(is_packed);
    }
  }
}

template void multiply_packed(const MatmulPath<float>&, const Product&, Kept, PackMemory&, bool);
template void multiply_packed(const MatmulPath<double>&, const Product&, Kept, PackMemory&, bool);

}  // namespace gt
