// Rows in order, and the first numbers of rows: which calls the kernels take.
//
// Each call has one more result than the operator, a bool for each row: whether another order of
// equal numbers would be as good, so that the row is for the caller's other implementation, by
// whose algorithm their places are.
#include <algorithm>

#include "cpu/sort.h"
#include "cpu/topk.h"
#include "table/kernel.h"

namespace gt {
namespace {

// Numbers of a row, and of all, from which on a kernel takes less time.
constexpr std::int64_t kRowMin = 128;
constexpr std::int64_t kRowMinOfInt64 = 256;
constexpr std::int64_t kElementsMin = 1024;
// Longer rows of float32 have equal numbers nearly always.
constexpr std::int64_t kUnstableRowMax = 2048;
// Open rows are at most one in so many.
constexpr std::int64_t kOpenShare = 8;
// Bounds of topk: the least length of a row, and how many times `k` that length is at least.
constexpr std::int64_t kTopRowMin = 768;
constexpr std::int64_t kTopShare = 64;

bool is_along_last(const TensorView& x, std::int64_t dim) {
  return x.rank > 0 && (dim == -1 || dim == x.rank - 1) && !x.is_empty() && x.is_contiguous();
}

std::size_t rows_of(const TensorView& x) {
  return static_cast<std::size_t>(x.elements() / x.size(-1));
}

// True if few enough rows are open.
bool are_few(const std::uint8_t* is_open, std::size_t rows) {
  const auto open = static_cast<std::size_t>(std::count(is_open, is_open + rows, 1));
  return open * static_cast<std::size_t>(kOpenShare) <= rows;
}

// self, stable or none, dim, descending.
struct SortCall {
  explicit SortCall(Arguments& from)
      : self(from.tensor()),
        is_stable(from.optional_number().value_or(0) != 0),
        dim(from.integer()),
        descending(from.flag()) {}

  bool is_valid() const {
    return (is_float32(self) || self.element == Element::kInt32 ||
            self.element == Element::kInt64) &&
           is_along_last(self, dim) && self.size(-1) <= static_cast<std::int64_t>(kSortedMost);
  }
  bool pays() const {
    const std::int64_t least = self.element == Element::kInt64 ? kRowMinOfInt64 : kRowMin;
    return self.elements() >= kElementsMin && self.size(-1) >= least &&
           (is_stable || self.size(-1) <= kUnstableRowMax);
  }
  bool run(Results& results) const {
    return self.element == Element::kFloat32 ? run_of<float>(results)
           : self.element == Element::kInt32 ? run_of<std::int32_t>(results)
                                             : run_of<std::int64_t>(results);
  }

  template <class T>
  bool run_of(Results& results) const {
    const auto* x = static_cast<const T*>(self.data);
    auto* values = static_cast<T*>(results.make(self.element, sizes_of(self)).data);
    auto* places = static_cast<std::int64_t*>(results.make(Element::kInt64, sizes_of(self)).data);
    const std::int64_t rows[] = {static_cast<std::int64_t>(rows_of(self))};
    auto* is_open = static_cast<std::uint8_t*>(results.make(Element::kBool, rows).data);
    SortedRows shape{1, static_cast<std::size_t>(self.size(-1)), descending};
    if (!is_stable) {
      // Most often one row tells whether numbers are few or many different ones.
      sort_rows(x, values, places, is_open, shape, results.threads());
      if (is_open[0] != 0) {
        return false;
      }
    }
    shape.rows = rows_of(self);
    sort_rows(x, values, places, is_open, shape, results.threads());
    if (is_stable) {
      std::fill_n(is_open, shape.rows, std::uint8_t{0});
    }
    return are_few(is_open, shape.rows);
  }

  TensorView self;
  bool is_stable;
  std::int64_t dim;
  bool descending;
};

// self, k, dim, largest, sorted: of rows whose first numbers are all different, in their order.
struct TopkCall {
  explicit TopkCall(Arguments& from)
      : self(from.tensor()),
        k(from.integer()),
        dim(from.integer()),
        largest(from.flag()),
        sorted(from.flag()) {}

  bool is_valid() const {
    return is_float32(self) && sorted && is_along_last(self, dim) && k > 0 &&
           k <= static_cast<std::int64_t>(kTopMost) && k <= self.size(-1);
  }
  bool pays() const {
    return self.elements() >= kElementsMin && self.size(-1) >= kTopRowMin &&
           k * kTopShare <= self.size(-1);
  }
  bool run(Results& results) const {
    std::vector<std::int64_t> sizes(self.shape, self.shape + self.rank);
    sizes.back() = k;
    float* values = results.floats(sizes);
    auto* places = static_cast<std::int64_t*>(results.make(Element::kInt64, sizes).data);
    const std::int64_t rows[] = {static_cast<std::int64_t>(rows_of(self))};
    auto* is_open = static_cast<std::uint8_t*>(results.make(Element::kBool, rows).data);
    top_rows(static_cast<const float*>(self.data), values, places, is_open,
             {rows_of(self), static_cast<std::size_t>(self.size(-1)), static_cast<std::size_t>(k),
              largest},
             results.threads());
    return are_few(is_open, rows_of(self));
  }

  TensorView self;
  std::int64_t k, dim;
  bool largest, sorted;
};

constexpr KernelRow kRows[] = {
    {"sort", 3, run_kernel<SortCall>},
    {"topk", 3, run_kernel<TopkCall>},
};

}  // namespace

std::span<const KernelRow> order_kernels() { return kRows; }

}  // namespace gt
