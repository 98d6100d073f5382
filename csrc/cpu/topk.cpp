#include "cpu/topk.h"

#include <algorithm>

#include "core/pool.h"

namespace gt {
namespace {

// Numbers in one task, which takes about 10 us.
constexpr std::size_t kTogether = 32 * 1024;
// Maximum number of insertions before a row counts as unclear: per kept number, and a share of the
// row.
constexpr std::size_t kMovedLeast = 8;
constexpr std::size_t kMovedShare = 32;
// Numbers compared together with the last kept one: few blocks have one that must be inserted.
constexpr std::size_t kBlock = 64;

// The first k numbers so far, and the next one after them.
template <bool kLargest>
class First {
 public:
  explicit First(std::size_t most) : most_(most) {}

  // Returns false for NaN.
  bool insert(float value, std::size_t place) {
    if (value != value) {
      return false;
    }
    std::size_t at = size_ < most_ ? size_++ : most_ - 1;
    for (; at > 0 && is_before(value, values_[at - 1]); --at) {
      values_[at] = values_[at - 1];
      places_[at] = places_[at - 1];
    }
    values_[at] = value;
    places_[at] = place;
    return true;
  }

  static bool is_before(float one, float other) { return kLargest ? one > other : one < other; }

  float last() const { return values_[size_ - 1]; }

  bool put(float* values, std::int64_t* places, std::size_t k) const {
    if (std::adjacent_find(values_, values_ + size_) != values_ + size_) {
      return false;
    }
    std::copy_n(values_, k, values);
    std::copy_n(places_, k, places);
    return true;
  }

 private:
  float values_[kTopMost + 1];
  std::size_t places_[kTopMost + 1];
  std::size_t most_;
  std::size_t size_ = 0;
};

// True where `last` comes strictly before every number of a block; false with a NaN.
template <bool kLargest>
bool is_behind(const float* x, float last) {
  std::int32_t is_any = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    is_any |= static_cast<std::int32_t>(!First<kLargest>::is_before(last, x[i]));
  }
  return is_any == 0;
}

template <bool kLargest>
bool top_of_row(const float* x, float* values, std::int64_t* places, std::size_t count,
                std::size_t k) {
  const std::size_t most = std::min(k + 1, count);
  First<kLargest> first(most);
  // Each insertion moves up to k others. A row in random order needs about k ln(count / k)
  // insertions.
  std::size_t left = kMovedLeast * most + count / kMovedShare;
  std::size_t i = 0;
  for (; i < most; ++i) {
    if (!first.insert(x[i], i)) {
      return false;
    }
  }
  while (i < count) {
    const std::size_t end = std::min(i + kBlock, count);
    if (end - i == kBlock && is_behind<kLargest>(x + i, first.last())) {
      i = end;
      continue;
    }
    for (; i < end; ++i) {
      const bool is_behind = first.is_before(first.last(), x[i]) || x[i] == first.last();
      if (!is_behind && (left-- == 0 || !first.insert(x[i], i))) {
        return false;
      }
    }
  }
  return first.put(values, places, k);
}

}  // namespace

void top_rows(const float* x, float* values, std::int64_t* places, std::uint8_t* is_unclear,
              const TopRows& shape, int threads) {
  const auto top = shape.largest ? top_of_row<true> : top_of_row<false>;
  const std::size_t together = std::max<std::size_t>(1, kTogether / shape.count);
  const std::size_t tasks = (shape.rows + together - 1) / together;
  run_tasks(static_cast<std::int64_t>(tasks), threads, [&](std::int64_t task) {
    const std::size_t begin = static_cast<std::size_t>(task) * together;
    for (std::size_t row = begin; row < std::min(begin + together, shape.rows); ++row) {
      is_unclear[row] = top(x + row * shape.count, values + row * shape.k, places + row * shape.k,
                            shape.count, shape.k)
                            ? 0
                            : 1;
    }
  });
}

}  // namespace gt
