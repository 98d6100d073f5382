#include "cpu/strided_copy.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace gt {
namespace {

// A cache line of numbers: a tile reads as many whole lines as it writes.
constexpr std::int64_t kTile = 16;

struct Dim {
  std::int64_t size, from, to;  // strides of both sides
};

// Without dimensions of one element, and as one where two go through memory as one.
std::vector<Dim> merged(std::span<const StridedDim> dims) {
  std::vector<Dim> reversed;
  std::int64_t to = 1;
  for (std::size_t at = dims.size(); at-- > 0;) {
    const StridedDim dim = dims[at];
    if (dim.size == 1) {
      continue;
    }
    if (!reversed.empty() && reversed.back().from * reversed.back().size == dim.stride) {
      reversed.back().size *= dim.size;
    } else {
      reversed.push_back({dim.size, dim.stride, to});
    }
    to *= dim.size;
  }
  std::reverse(reversed.begin(), reversed.end());
  return reversed;
}

// Four numbers: on every machine a register has them.
typedef float Four __attribute__((vector_size(16)));

Four four_at(const float* from) {
  Four value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Four rows of four of `to` from four columns of `from`, by registers.
void turn_four(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride) {
  const Four a = four_at(from), b = four_at(from + from_stride);
  const Four c = four_at(from + 2 * from_stride), d = four_at(from + 3 * from_stride);
  const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const Four rows[] = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                       __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                       __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                       __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
  for (std::int64_t row = 0; row < 4; ++row) {
    std::memcpy(to + row * to_stride, &rows[row], sizeof(Four));
  }
}

// to[i, j] = from[i, j] of a tile.
void turn_tile(const float* from, float* to, const Dim& i_dim, const Dim& j_dim,
               std::int64_t height, std::int64_t width) {
  if (i_dim.from == 1 && height == kTile && width == kTile) {
    for (std::int64_t i = 0; i < kTile; i += 4) {
      for (std::int64_t j = 0; j < kTile; j += 4) {
        turn_four(from + i + j * j_dim.from, j_dim.from, to + i * i_dim.to + j, i_dim.to);
      }
    }
    return;
  }
  for (std::int64_t i = 0; i < height; ++i) {
    for (std::int64_t j = 0; j < width; ++j) {
      to[i * i_dim.to + j] = from[i * i_dim.from + j * j_dim.from];
    }
  }
}

// Neighbours along i are neighbours in `from`, those along j in `out`: tile by tile, so that both
// sides are read and written by whole lines.
void turn(const float* from, float* out, const Dim& i_dim, const Dim& j_dim) {
  for (std::int64_t i = 0; i < i_dim.size; i += kTile) {
    const std::int64_t height = std::min(kTile, i_dim.size - i);
    for (std::int64_t j = 0; j < j_dim.size; j += kTile) {
      const std::int64_t width = std::min(kTile, j_dim.size - j);
      turn_tile(from + i * i_dim.from + j * j_dim.from, out + i * i_dim.to + j, i_dim, j_dim,
                height, width);
    }
  }
}

void copy_of(const float* from, std::span<const Dim> dims, const Dim& i_dim, const Dim& j_dim,
             float* out) {
  if (dims.empty()) {
    turn(from, out, i_dim, j_dim);
    return;
  }
  const Dim& outer = dims.front();
  for (std::int64_t at = 0; at < outer.size; ++at) {
    copy_of(from + at * outer.from, dims.subspan(1), i_dim, j_dim, out + at * outer.to);
  }
}

}  // namespace

void strided_copy(const float* from, std::span<const StridedDim> dims, float* out) {
  std::vector<Dim> rest = merged(dims);
  Dim j_dim{1, 1, 1}, i_dim{1, 1, 1};
  if (!rest.empty()) {
    j_dim = rest.back();
    rest.pop_back();
  }
  if (!rest.empty()) {
    const auto nearest =
        std::min_element(rest.begin(), rest.end(),
                         [](const Dim& one, const Dim& other) { return one.from < other.from; });
    i_dim = *nearest;
    rest.erase(nearest);
  }
  copy_of(from, rest, i_dim, j_dim, out);
}

}  // namespace gt
