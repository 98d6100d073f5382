// Gathering and scattering of rows and numbers by an index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gt {

// An index along one dimension of an array; in all other dimensions it is at most as large.
struct Along {
  std::vector<std::size_t> sizes;    // sizes of the index
  std::vector<std::size_t> strides;  // strides of the array; 0 along the dimension
  std::size_t count, stride;         // size and stride of the dimension
};

// All return false where an index is outside [0, count); the output is then incomplete.

// out[.., p, ..] = x[.., index[.., p, ..], ..]
bool gather(const Along& along, const float* x, const std::int64_t* index, float* out);
// out[.., index[.., p, ..], ..] = source[.., p, ..], in the order of the index
bool scatter(const Along& along, float* out, const std::int64_t* index, const float* source);
// out[.., index[.., p, ..], ..] += source[.., p, ..], in the order of the index
bool scatter_add(const Along& along, float* out, const std::int64_t* index, const float* source);

// out[p] = table[index[p]], rows of `columns` numbers.
bool take_rows(const float* table, std::size_t count, std::size_t columns,
               const std::int64_t* index, std::size_t picked, float* out);

}  // namespace gt
