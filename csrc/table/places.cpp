// Elements and rows that an index of int64 names, of contiguous float32: which calls the kernels
// take. A call with an index outside is left to what says so.
#include "cpu/places.h"

#include <algorithm>

#include "cpu/array_path.h"
#include "table/kernel.h"

namespace gt {
namespace {

bool is_index(const TensorView& view) { return view.element == Element::kInt64; }

const std::int64_t* integers(const RowMajor& index) {
  return static_cast<const std::int64_t*>(index.data());
}

// A table of rows along its first dimension, with elements.
bool is_table(const TensorView& view) {
  return is_row_major(view) && view.rank > 0 && !view.is_empty();
}

// The rows of a table that an index names: sizes are those of the index, then of a row.
bool take_into(Results& results, const TensorView& table, const TensorView& index) {
  std::vector<std::int64_t> sizes(index.shape, index.shape + index.rank);
  sizes.insert(sizes.end(), table.shape + 1, table.shape + table.rank);
  const RowMajor picked(index, results.threads());
  const auto rows = static_cast<std::size_t>(table.size(0));
  float* out = results.floats(sizes);
  return take_rows(floats(table), rows, count_of(table) / rows, integers(picked), count_of(index),
                   out);
}

// weight, indices, padding_idx; then, for a shard of the rows alone, its place among them.
struct EmbeddingCall {
  explicit EmbeddingCall(Arguments& from) : weight(from.tensor()), indices(from.tensor()) {
    from.optional_number();
    is_whole = from.has_none_left();
  }

  bool is_valid() const { return is_whole && is_table(weight) && is_index(indices); }
  bool pays() const { return true; }
  bool run(Results& results) const { return take_into(results, weight, indices); }

  TensorView weight, indices;
  bool is_whole;
};

// self, index, dim, and the place of a shard.
struct IndexSelectCall {
  explicit IndexSelectCall(Arguments& from)
      : self(from.tensor()),
        index(from.tensor()),
        dim(from.integer()),
        is_whole(from.has_none_left()) {}

  bool is_valid() const {
    return is_whole && is_table(self) && is_index(index) && index.rank == 1 &&
           (dim == 0 || dim == -self.rank);
  }
  bool pays() const { return true; }
  bool run(Results& results) const { return take_into(results, self, index); }

  TensorView self, index;
  std::int64_t dim;
  bool is_whole;
};

// Adds rows of any strides to those that an index names; `ignored` is none of them.
bool add_rows(float* out, std::size_t count, const TensorView& index, const TensorView& source,
              std::optional<std::int64_t> ignored, int threads) {
  const RowMajor places(index, threads), rows(source, threads);
  const std::size_t columns = count_of(source) / count_of(index);
  for (std::size_t at = 0; at < count_of(index); ++at) {
    const std::int64_t place = integers(places)[at];
    if (static_cast<std::size_t>(place) >= count) {  // a negative one is too large
      return false;
    }
    if (place != ignored) {
      array_path().add(rows.floats() + at * columns,
                       out + static_cast<std::size_t>(place) * columns, columns);
    }
  }
  return true;
}

// grad, indices, num_weights, padding_idx, and the place of a shard.
struct EmbeddingBackwardCall {
  explicit EmbeddingBackwardCall(Arguments& from)
      : grad(from.tensor()), indices(from.tensor()), count(from.integer()) {
    if (const std::optional<double> padding = from.optional_number()) {
      ignored = static_cast<std::int64_t>(*padding);
    }
    is_whole = from.has_none_left();
  }

  bool is_valid() const {
    return is_whole && is_float32(grad) && is_index(indices) && !indices.is_empty() && count >= 0 &&
           grad.rank == indices.rank + 1 &&
           std::ranges::equal(sizes_of(indices),
                              sizes_of(grad).first(static_cast<std::size_t>(indices.rank)));
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const std::int64_t sizes[] = {count, grad.size(-1)};
    float* out = results.floats(sizes);
    std::fill_n(out, count * grad.size(-1), 0.0F);
    return add_rows(out, static_cast<std::size_t>(count), indices, grad, ignored,
                    results.threads());
  }

  TensorView grad, indices;
  std::int64_t count;
  std::optional<std::int64_t> ignored;
  bool is_whole;
};

// self, index, source, dim, and the place of a shard.
struct IndexAddCall {
  explicit IndexAddCall(Arguments& from)
      : self(from.tensor()),
        index(from.tensor()),
        source(from.tensor()),
        dim(from.integer()),
        is_whole(from.has_none_left()) {}

  bool is_valid() const {
    return is_whole && dim == 0 && is_table(self) && is_index(index) && index.rank == 1 &&
           !index.is_empty() && is_float32(source) && source.rank == self.rank &&
           source.size(0) == index.size(0) &&
           std::ranges::equal(sizes_of(self).subspan(1), sizes_of(source).subspan(1));
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    float* out = results.floats(sizes_of(self));
    std::copy_n(floats(self), count_of(self), out);
    return add_rows(out, static_cast<std::size_t>(self.size(0)), index, source, std::nullopt,
                    results.threads());
  }

  TensorView self, index, source;
  std::int64_t dim;
  bool is_whole;
};

// An index along a dimension of an array, of as many dimensions; in the others it is at most as
// large.
struct AlongCall {
  bool is_along() const {
    if (!is_row_major(self) || !is_index(index) || self.rank == 0 || index.rank != self.rank ||
        dim < -self.rank || dim >= self.rank) {
      return false;
    }
    for (int at = 0; at < self.rank; ++at) {
      if (at != wrapped() && index.size(at) > self.size(at)) {
        return false;
      }
    }
    return true;
  }
  int wrapped() const { return static_cast<int>(dim < 0 ? dim + self.rank : dim); }

  Along along() const {
    const auto rank = static_cast<std::size_t>(self.rank);
    Along along{{index.shape, index.shape + rank}, std::vector<std::size_t>(rank), 0, 1};
    std::size_t stride = 1;
    for (std::size_t at = rank; at-- > 0;) {
      const auto size = static_cast<std::size_t>(self.shape[at]);
      const bool is_dim = static_cast<int>(at) == wrapped();
      along.strides[at] = is_dim ? 0 : stride;
      if (is_dim) {
        along.count = size;
        along.stride = stride;
      }
      stride *= size;
    }
    return along;
  }

  TensorView self, index;
  std::int64_t dim;
  bool is_whole;
};

// self, index, dim, and the place of a shard.
struct GatherCall : AlongCall {
  explicit GatherCall(Arguments& from)
      : AlongCall{from.tensor(), from.tensor(), from.integer(), from.has_none_left()} {}

  bool is_valid() const { return is_whole && is_along(); }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const RowMajor places(index, results.threads());
    return gather(along(), floats(self), integers(places), results.floats(sizes_of(index)));
  }
};

// self, index, src, dim, and the place of a shard; of src as much as the index has.
template <auto kScatter>
struct ScatterCall : AlongCall {
  explicit ScatterCall(Arguments& from) {
    self = from.tensor();
    index = from.tensor();
    source = from.tensor();
    dim = from.integer();
    is_whole = from.has_none_left();
  }

  bool is_valid() const {
    return is_whole && is_along() && is_float32(source) && source.rank == index.rank &&
           std::ranges::equal(sizes_of(index), sizes_of(source), std::less_equal<>());
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const TensorView part{source.data, source.element, index.rank, index.shape, source.strides};
    const RowMajor places(index, results.threads()), values(part, results.threads());
    float* out = results.floats(sizes_of(self));
    std::copy_n(floats(self), count_of(self), out);
    return kScatter(along(), out, integers(places), values.floats());
  }

  TensorView source;
};

constexpr KernelRow kRows[] = {
    {"embedding", 1, run_kernel<EmbeddingCall>},
    {"embedding_backward", 1, run_kernel<EmbeddingBackwardCall>},
    {"index_select", 1, run_kernel<IndexSelectCall>},
    {"index_add", 1, run_kernel<IndexAddCall>},
    {"gather", 1, run_kernel<GatherCall>},
    {"scatter", 1, run_kernel<ScatterCall<&scatter>>},
    {"scatter_add", 1, run_kernel<ScatterCall<&scatter_add>>},
};

}  // namespace

std::span<const KernelRow> place_kernels() { return kRows; }

}  // namespace gt
