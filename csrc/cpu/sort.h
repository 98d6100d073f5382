// Rows in order, with the places where their numbers were.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gt {

// A place is 32 bits while rows are sorted.
inline constexpr std::size_t kSortedMost = INT32_MAX;

// Contiguous rows of `count` numbers each, at most kSortedMost.
struct SortedRows {
  std::size_t rows, count;
  bool descending;
};

// values and places [rows, count]; of equal numbers the first is before the others. What is no
// number is above all others, and equal to its like; zeros of both signs are equal. has_equal
// [rows]: whether two numbers of a row are equal, so that another order of their places would be as
// good.
void sort_rows(const float* x, float* values, std::int64_t* places, std::uint8_t* has_equal,
               const SortedRows& shape, int threads);
void sort_rows(const std::int32_t* x, std::int32_t* values, std::int64_t* places,
               std::uint8_t* has_equal, const SortedRows& shape, int threads);
void sort_rows(const std::int64_t* x, std::int64_t* values, std::int64_t* places,
               std::uint8_t* has_equal, const SortedRows& shape, int threads);

}  // namespace gt
