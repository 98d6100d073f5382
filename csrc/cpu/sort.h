// Sorted rows, with the original indices of their numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gt {

// Maximum row length, because an index has 32 bits during the sort.
inline constexpr std::size_t kSortedMost = INT32_MAX;

// Contiguous rows of `count` numbers each, at most kSortedMost.
struct SortedRows {
  std::size_t rows, count;
  bool descending;
};

// values and places are [rows, count]; equal numbers keep their order. NaN is above all others and
// equal to NaN; zeros of both signs are equal. has_equal [rows]: two numbers of the row are equal,
// so that another order of their indices would be valid too.
void sort_rows(const float* x, float* values, std::int64_t* places, std::uint8_t* has_equal,
               const SortedRows& shape, int threads);
void sort_rows(const std::int32_t* x, std::int32_t* values, std::int64_t* places,
               std::uint8_t* has_equal, const SortedRows& shape, int threads);
void sort_rows(const std::int64_t* x, std::int64_t* values, std::int64_t* places,
               std::uint8_t* has_equal, const SortedRows& shape, int threads);

}  // namespace gt
