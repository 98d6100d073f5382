#include "cpu/strided_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/message.h"
#include "core/pool.h"

namespace gt {
namespace {

// Elements of a cache line: a tile reads and writes the same number of whole lines.
template <class T>
constexpr std::int64_t kTile = 64 / sizeof(T);

// Elements of a 16-byte register, which every machine has: the side of the square that is
// transposed at once.
template <class T>
constexpr std::int64_t kSquare = 16 / sizeof(T);

// Rows and columns of a block: both sides stay in the second-level cache, and its pages fit the
// TLB. A task is one or more blocks.
constexpr std::int64_t kBlock = 128;
constexpr std::int64_t kTogether = kBlock * kBlock;

// Lines of a tile that are a multiple of this many elements apart evict each other from a
// first-level cache of 64 sets and 8 ways.
constexpr std::int64_t kConflicting = 512;

struct Dim {
  std::int64_t size, from, to;  // strides of both sides
};

// Drops dims of one element, and merges adjacent dims that advance through memory as one.
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

template <class T>
struct Register {
  typedef T Type __attribute__((vector_size(16)));
};

// Interleaves the lower or the upper halves of two registers, element by element.
template <class T, int kFirst, int... kPlaces>
typename Register<T>::Type interleaved(typename Register<T>::Type one,
                                       typename Register<T>::Type other,
                                       std::integer_sequence<int, kPlaces...>) {
  constexpr int kCount = sizeof...(kPlaces);
  return __builtin_shufflevector(one, other,
                                 (kFirst + kPlaces / 2 + (kPlaces % 2 == 1 ? kCount : 0))...);
}

// Transposes the square at `from`: row i of `to` is its column i. Halves are interleaved until each
// element is in its place.
template <class T>
void turn_square(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride) {
  using Row = typename Register<T>::Type;
  constexpr std::int64_t kCount = kSquare<T>;
  constexpr std::make_integer_sequence<int, kCount> kPlaces;
  Row rows[kCount];
  for (std::int64_t row = 0; row < kCount; ++row) {
    std::memcpy(&rows[row], from + row * from_stride, sizeof(Row));
  }
  for (std::int64_t step = 1; step < kCount; step *= 2) {
    Row next[kCount];
    for (std::int64_t row = 0; row < kCount / 2; ++row) {
      const Row one = rows[row], other = rows[row + kCount / 2];
      next[2 * row] = interleaved<T, 0>(one, other, kPlaces);
      next[2 * row + 1] = interleaved<T, static_cast<int>(kCount / 2)>(one, other, kPlaces);
    }
    std::copy_n(next, kCount, rows);
  }
  for (std::int64_t row = 0; row < kCount; ++row) {
    std::memcpy(to + row * to_stride, &rows[row], sizeof(Row));
  }
}

// Transposes through a local buffer, so that each line is read and written once.
template <class T>
void turn_tile(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride) {
  constexpr std::int64_t kSide = kTile<T>;
  alignas(64) T turned[kSide * kSide];
  for (std::int64_t j = 0; j < kSide; j += kSquare<T>) {
    for (std::int64_t i = 0; i < kSide; i += kSquare<T>) {
      turn_square(from + j * from_stride + i, from_stride, turned + i * kSide + j, kSide);
    }
  }
  for (std::int64_t i = 0; i < kSide; ++i) {
    std::memcpy(to + i * to_stride, turned + i * kSide, 64);
  }
}

// A block of rows i and columns j: to[i, j] = from[i, j].
template <class T>
struct Block {
  const T* from;
  T* to;
  Dim i, j;

  Block part(std::int64_t row, std::int64_t height, std::int64_t column, std::int64_t width) const {
    return {from + row * i.from + column * j.from, to + row * i.to + column,
            Dim{height, i.from, i.to}, Dim{width, j.from, j.to}};
  }

  void copy() const {
    if (j.from == 1) {
      copy_rows();
    } else if (i.from == 1) {
      copy_tiles();
    } else {
      copy_each();
    }
  }

 private:
  void copy_rows() const {
    for (std::int64_t row = 0; row < i.size; ++row) {
      std::memcpy(to + row * i.to, from + row * i.from,
                  static_cast<std::size_t>(j.size) * sizeof(T));
    }
  }

  // Neighbours along i are adjacent in `from`, those along j in `to`: tiles read and write whole
  // cache lines on both sides.
  void copy_tiles() const {
    constexpr std::int64_t kSide = kTile<T>;
    const bool has_conflicts = j.from % kConflicting == 0 || i.to % kConflicting == 0;
    for (std::int64_t row = 0; row < i.size; row += kSide) {
      const std::int64_t height = std::min(kSide, i.size - row);
      for (std::int64_t column = 0; column < j.size; column += kSide) {
        const std::int64_t width = std::min(kSide, j.size - column);
        if (has_conflicts && height == kSide && width == kSide) {
          turn_tile(from + row + column * j.from, j.from, to + row * i.to + column, i.to);
        } else {
          part(row, height, column, width).copy_squares();
        }
      }
    }
  }

  void copy_squares() const {
    constexpr std::int64_t kSide = kSquare<T>;
    const std::int64_t high = i.size / kSide * kSide, wide = j.size / kSide * kSide;
    for (std::int64_t row = 0; row < high; row += kSide) {
      for (std::int64_t column = 0; column < wide; column += kSide) {
        turn_square(from + row + column * j.from, j.from, to + row * i.to + column, i.to);
      }
    }
    part(0, high, wide, j.size - wide).copy_each();
    part(high, i.size - high, 0, j.size).copy_each();
  }

  void copy_each() const {
    for (std::int64_t row = 0; row < i.size; ++row) {
      for (std::int64_t column = 0; column < j.size; ++column) {
        to[row * i.to + column] = from[row * i.from + column * j.from];
      }
    }
  }
};

std::int64_t blocks_of(std::int64_t size) { return (size + kBlock - 1) / kBlock; }

// Copies blocks of two dims, over all indices of the remaining dims.
template <class T>
void copy_of(const T* from, const std::vector<Dim>& rest, const Dim& i, const Dim& j, T* out,
             int threads) {
  const std::int64_t high = blocks_of(i.size), wide = blocks_of(j.size);
  std::int64_t blocks = high * wide;
  for (const Dim& dim : rest) {
    blocks *= dim.size;
  }
  const std::int64_t size = std::min(i.size, kBlock) * std::min(j.size, kBlock);
  const std::int64_t together = std::max<std::int64_t>(1, kTogether / size);
  run_tasks((blocks + together - 1) / together, threads, [&](std::int64_t task) {
    const std::int64_t end = std::min((task + 1) * together, blocks);
    for (std::int64_t block = task * together; block < end; ++block) {
      const std::int64_t row = block / wide % high * kBlock;
      const std::int64_t column = block % wide * kBlock;
      std::int64_t from_place = row * i.from + column * j.from;
      std::int64_t to_place = row * i.to + column;
      std::int64_t left = block / wide / high;
      for (std::size_t at = rest.size(); at-- > 0; left /= rest[at].size) {
        from_place += left % rest[at].size * rest[at].from;
        to_place += left % rest[at].size * rest[at].to;
      }
      Block<T>{from + from_place, out + to_place, Dim{std::min(kBlock, i.size - row), i.from, i.to},
               Dim{std::min(kBlock, j.size - column), j.from, j.to}}
          .copy();
    }
  });
}

// Orders dims by their stride; a repeated dim (stride 0) comes last.
bool is_nearer(const Dim& one, const Dim& other) {
  return one.from != 0 && (other.from == 0 || std::abs(one.from) < std::abs(other.from));
}

template <class T>
void copy_as(const void* from, std::span<const StridedDim> dims, void* out, int threads) {
  std::vector<Dim> rest = merged(dims);
  Dim j{1, 1, 1}, i{1, 1, 1};
  if (!rest.empty()) {
    j = rest.back();
    rest.pop_back();
  }
  if (!rest.empty()) {
    const auto nearest = std::min_element(rest.begin(), rest.end(), is_nearer);
    i = *nearest;
    rest.erase(nearest);
  }
  copy_of(static_cast<const T*>(from), rest, i, j, static_cast<T*>(out), threads);
}

}  // namespace

void strided_copy(std::size_t element_bytes, const void* from, std::span<const StridedDim> dims,
                  void* out, int threads) {
  switch (element_bytes) {
    case 1:
      return copy_as<std::uint8_t>(from, dims, out, threads);
    case 2:
      return copy_as<std::uint16_t>(from, dims, out, threads);
    case 4:
      return copy_as<std::uint32_t>(from, dims, out, threads);
    case 8:
      return copy_as<std::uint64_t>(from, dims, out, threads);
    default:
      throw std::invalid_argument(message("strided_copy: elements of ", element_bytes, " bytes"));
  }
}

}  // namespace gt
