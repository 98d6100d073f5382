#include "cpu/places.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace gt {
namespace {

// Walks over the rows of the index, with each row's offset in the array.
class Rows {
 public:
  explicit Rows(const Along& along) : along_(along), position_(along.sizes.size() - 1) {}

  std::size_t count() const {
    return std::accumulate(along_.sizes.begin(), along_.sizes.end() - 1, std::size_t{1},
                           std::multiplies<>());
  }

  std::size_t first() const { return first_; }

  void advance() {
    for (std::size_t dim = position_.size(); dim-- > 0;) {
      first_ += along_.strides[dim];
      if (++position_[dim] < along_.sizes[dim]) {
        return;
      }
      first_ -= along_.strides[dim] * along_.sizes[dim];
      position_[dim] = 0;
    }
  }

 private:
  const Along& along_;
  std::vector<std::size_t> position_;
  std::size_t first_ = 0;
};

// Calls step(offset in the array, offset in the index) for each number of the index.
template <class Step>
bool each_place(const Along& along, const std::int64_t* index, const Step& step) {
  Rows rows(along);
  const std::size_t length = along.sizes.back(), advance = along.strides.back();
  const std::size_t count = along.count, stride = along.stride;
  std::size_t at = 0;
  for (std::size_t row = rows.count(); row > 0; --row, rows.advance()) {
    const std::size_t first = rows.first();
    for (std::size_t i = 0; i < length; ++i, ++at) {
      const auto place = static_cast<std::size_t>(index[at]);  // a negative one is too large
      if (place >= count) {
        return false;
      }
      step(first + place * stride + i * advance, at);
    }
  }
  return true;
}

}  // namespace

bool gather(const Along& along, const float* x, const std::int64_t* index, float* out) {
  return each_place(along, index,
                    [x, out](std::size_t from, std::size_t to) { out[to] = x[from]; });
}

bool scatter(const Along& along, float* out, const std::int64_t* index, const float* source) {
  return each_place(along, index,
                    [source, out](std::size_t to, std::size_t from) { out[to] = source[from]; });
}

bool scatter_add(const Along& along, float* out, const std::int64_t* index, const float* source) {
  return each_place(along, index,
                    [source, out](std::size_t to, std::size_t from) { out[to] += source[from]; });
}

bool take_rows(const float* table, std::size_t count, std::size_t columns,
               const std::int64_t* index, std::size_t picked, float* out) {
  for (std::size_t at = 0; at < picked; ++at) {
    const auto row = static_cast<std::size_t>(index[at]);
    if (row >= count) {
      return false;
    }
    std::copy_n(table + row * columns, columns, out + at * columns);
  }
  return true;
}

}  // namespace gt
