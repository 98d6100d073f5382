// Rows in order by GT's own kernel.
#include <ATen/Parallel.h>
#include <ATen/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>

#include "own.h"

namespace gt {
namespace {

using at::Tensor;

// Numbers of a row, and of all, from which on a kernel takes less time.
constexpr int64_t ROW_MIN = 128;
constexpr int64_t LONG_ROW_MIN = 256;  // of int64
constexpr int64_t SORTED_MIN = 1024;
// Where equal numbers may stand in any order, ATen's is by its algorithm: rows that have some are
// ATen's. Longer rows of float32 have some nearly always.
constexpr int64_t UNSTABLE_ROW_MAX = 2048;
constexpr int64_t UNSTABLE_SHARE = 8;

// Of the first numbers of rows: a row's, the first ones', and how many times as many a row has.
constexpr int64_t TOP_ROW_MIN = 768;
constexpr int64_t TOP_MAX = 64;
constexpr int64_t TOP_SHARE = 64;

struct Sorted {
  Tensor values, places, has_equal;
};

Sorted sorted(const Tensor& rows, bool descending) {
  Sorted made{at::empty(rows.sizes(), rows.options()),
              at::empty(rows.sizes(), rows.options().dtype(at::kLong)),
              at::empty({rows.size(0)}, rows.options().dtype(at::kBool))};
  KernelTensor x = given(rows);
  x.element = rows.scalar_type() == at::kFloat ? KernelElement::Float32
              : rows.scalar_type() == at::kInt ? KernelElement::Int32
                                               : KernelElement::Int64;
  call(kernels.sort, {x, given(made.values), given(made.places), given(made.has_equal)},
       {descending ? 1.0 : 0.0}, at::get_num_threads());
  return made;
}

bool is_sorted_here(const Tensor& x, int64_t dim) {
  bool is_known = is_float(x) || gt::is_of(at::kInt, x) || gt::is_of(at::kLong, x);
  return kernels.sort != nullptr && is_known && x.dim() > 0 && (dim == -1 || dim == x.dim() - 1) &&
         x.is_contiguous() && x.numel() >= SORTED_MIN &&
         x.size(-1) >= (x.scalar_type() == at::kLong ? LONG_ROW_MIN : ROW_MIN) &&
         x.size(-1) <= INT32_MAX;
}

// Of rows with equal numbers ATen's order, by whose algorithm their places are, as `of_aten` has
// it; false where too many have some.
template <class OfAten>
bool put_equal(const Tensor& rows, Sorted& made, const OfAten& of_aten) {
  const bool* has_equal = made.has_equal.const_data_ptr<bool>();
  int64_t count = std::count(has_equal, has_equal + rows.size(0), true);
  if (count * UNSTABLE_SHARE > rows.size(0)) return false;
  for (int64_t row = 0; row < rows.size(0); ++row) {
    if (!has_equal[row]) continue;
    auto [values, places] = of_aten(rows.narrow(0, row, 1));
    made.values.narrow(0, row, 1).copy_(values);
    made.places.narrow(0, row, 1).copy_(places);
  }
  return true;
}

}  // namespace

// self, stable or none, dim, descending.
bool sort(const Values& given, Values& results) {
  Tensor x = tensor_of(given[0]);
  if (!x.defined() || !is_sorted_here(x, given[2].toInt())) return false;
  bool is_stable = !given[1].isNone() && given[1].toBool();
  bool descending = given[3].toBool();
  Tensor rows = x.view({-1, x.size(-1)});
  if (!is_stable) {
    // Most often a row tells whether numbers are few or many different ones.
    if (x.size(-1) > UNSTABLE_ROW_MAX ||
        sorted(rows.narrow(0, 0, 1), descending).has_equal.item<bool>())
      return false;
  }
  Sorted made = sorted(rows, descending);
  const auto of_aten = [&](const Tensor& row) { return at::sort(row, false, -1, descending); };
  if (!is_stable && !put_equal(rows, made, of_aten)) return false;
  results = {made.values.view(x.sizes()), made.places.view(x.sizes())};
  return true;
}

// self, k, dim, largest, sorted: of rows whose first numbers are all different, in their order.
bool topk(const Values& given, Values& results) {
  Tensor x = tensor_of(given[0]);
  int64_t k = given[1].toInt();
  int64_t dim = given[2].toInt();
  bool largest = given[3].toBool();
  bool is_taken = kernels.topk != nullptr && is_float(x) && x.dim() > 0 && given[4].toBool() &&
                  (dim == -1 || dim == x.dim() - 1) && x.is_contiguous() &&
                  x.numel() >= SORTED_MIN && x.size(-1) >= TOP_ROW_MIN && k > 0 && k <= TOP_MAX &&
                  k * TOP_SHARE <= x.size(-1);
  if (!is_taken) return false;
  Tensor rows = x.view({-1, x.size(-1)});
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = k;
  Sorted made{at::empty({rows.size(0), k}, x.options()),
              at::empty({rows.size(0), k}, x.options().dtype(at::kLong)),
              at::empty({rows.size(0)}, x.options().dtype(at::kBool))};
  call(kernels.topk,
       {gt::given(rows), gt::given(made.values), gt::given(made.places), gt::given(made.has_equal)},
       {largest ? 1.0 : 0.0}, at::get_num_threads());
  const auto of_aten = [&](const Tensor& row) { return at::topk(row, k, -1, largest, true); };
  if (!put_equal(rows, made, of_aten)) return false;
  results = {made.values.view(sizes), made.places.view(sizes)};
  return true;
}

}  // namespace gt
