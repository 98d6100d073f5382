#include "cpu/sort.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "core/pool.h"
#include "core/scratch.h"

namespace gt {
namespace {

// Numbers in one task, which takes about 30 us.
constexpr std::size_t kTogether = 4096;
// Maximum row length whose working memory stays allocated from call to call.
constexpr std::size_t kKept = 64 * 1024;

// A key, which orders as an unsigned integer like the numbers, and an index.
struct Narrow {
  std::uint64_t both;
  Narrow(std::uint64_t key, std::size_t place) : both(key << 32 | place) {}
  std::uint64_t key() const { return both >> 32; }
  std::size_t place() const { return both & 0xFFFFFFFFU; }
};

struct Wide {
  std::uint64_t bits;
  std::size_t at;
  Wide(std::uint64_t key, std::size_t place) : bits(key), at(place) {}
  std::uint64_t key() const { return bits; }
  std::size_t place() const { return at; }
};

// Stable radix sort from the lowest byte. Returns the buffer that holds the result.
template <class Item>
const Item* in_order(Item* from, Item* to, std::size_t count, int key_bits) {
  for (int shift = 0; shift < key_bits; shift += 8) {
    std::uint32_t starts[256] = {};
    for (std::size_t i = 0; i < count; ++i) {
      ++starts[from[i].key() >> shift & 0xFF];
    }
    if (starts[from[0].key() >> shift & 0xFF] == count) {
      continue;
    }
    std::uint32_t start = 0;
    for (std::uint32_t& one : starts) {
      start += std::exchange(one, start);
    }
    for (std::size_t i = 0; i < count; ++i) {
      to[starts[from[i].key() >> shift & 0xFF]++] = from[i];
    }
    std::swap(from, to);
  }
  return from;
}

std::uint64_t float_key(float x) {
  constexpr std::uint32_t kSign = 0x80000000U;
  if (x != x) {
    return 0xFFFFFFFFU;
  }
  const auto bits = std::bit_cast<std::uint32_t>(x == 0.0F ? 0.0F : x);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

// Sorts one row by key_of(x), which has key_bits bits. Returns whether two keys are equal.
template <class Item, class T, class KeyOf>
bool sort_row(const T* x, T* values, std::int64_t* places, std::size_t count, int key_bits,
              void* memory, const KeyOf& key_of) {
  Item* items = static_cast<Item*>(memory);
  for (std::size_t i = 0; i < count; ++i) {
    new (items + i) Item(key_of(x[i]), i);
  }
  const Item* sorted = in_order(items, items + count, count, key_bits);
  bool has_equal = false;
  for (std::size_t i = 0; i < count; ++i) {
    has_equal |= i > 0 && sorted[i].key() == sorted[i - 1].key();
    places[i] = static_cast<std::int64_t>(sorted[i].place());
    values[i] = x[sorted[i].place()];
  }
  return has_equal;
}

bool sort_one(const float* x, float* values, std::int64_t* places, const SortedRows& shape,
              void* memory) {
  const std::uint64_t flipped = shape.descending ? 0xFFFFFFFFU : 0;
  return sort_row<Narrow>(x, values, places, shape.count, 32, memory,
                          [flipped](float one) { return float_key(one) ^ flipped; });
}

// Sorts integers by their distance from the smallest, or from the largest where descending.
template <class Integer>
bool sort_one(const Integer* x, Integer* values, std::int64_t* places, const SortedRows& shape,
              void* memory) {
  const auto [low, high] = std::minmax_element(x, x + shape.count);
  const auto least = static_cast<std::uint64_t>(*low), most = static_cast<std::uint64_t>(*high);
  const auto key_of = [&](Integer one) {
    const auto bits = static_cast<std::uint64_t>(one);
    return shape.descending ? most - bits : bits - least;
  };
  const int key_bits = static_cast<int>(std::bit_width(most - least));
  return key_bits <= 32 ? sort_row<Narrow>(x, values, places, shape.count, key_bits, memory, key_of)
                        : sort_row<Wide>(x, values, places, shape.count, key_bits, memory, key_of);
}

// Bytes for both buffers of the radix sort.
std::size_t memory_of(std::size_t count) { return 2 * count * sizeof(Wide); }

template <class T>
void sort_all(const T* x, T* values, std::int64_t* places, std::uint8_t* has_equal,
              const SortedRows& shape, int threads) {
  const auto sort = [&](std::size_t row, void* memory) {
    const std::size_t at = row * shape.count;
    has_equal[row] = sort_one(x + at, values + at, places + at, shape, memory) ? 1 : 0;
  };
  if (shape.count > kKept) {
    // A task must not fail, so the memory for its rows is allocated before it starts.
    const std::size_t tasks = std::min(shape.rows, static_cast<std::size_t>(threads));
    Scratch scratch;
    auto* memory = static_cast<std::byte*>(scratch.bytes(tasks * memory_of(shape.count)));
    run_tasks(static_cast<std::int64_t>(tasks), threads, [&](std::int64_t task) {
      const auto first = static_cast<std::size_t>(task);
      for (std::size_t row = first; row < shape.rows; row += tasks) {
        sort(row, memory + first * memory_of(shape.count));
      }
    });
    return;
  }
  const std::size_t together = std::max<std::size_t>(1, kTogether / shape.count);
  const std::size_t tasks = (shape.rows + together - 1) / together;
  run_tasks(static_cast<std::int64_t>(tasks), threads, [&](std::int64_t task) {
    thread_local Scratch kept;
    void* memory = kept.bytes(memory_of(shape.count));
    const std::size_t begin = static_cast<std::size_t>(task) * together;
    for (std::size_t row = begin; row < std::min(begin + together, shape.rows); ++row) {
      sort(row, memory);
    }
  });
}

}  // namespace

void sort_rows(const float* x, float* values, std::int64_t* places, std::uint8_t* has_equal,
               const SortedRows& shape, int threads) {
  sort_all(x, values, places, has_equal, shape, threads);
}

void sort_rows(const std::int32_t* x, std::int32_t* values, std::int64_t* places,
               std::uint8_t* has_equal, const SortedRows& shape, int threads) {
  sort_all(x, values, places, has_equal, shape, threads);
}

void sort_rows(const std::int64_t* x, std::int64_t* values, std::int64_t* places,
               std::uint8_t* has_equal, const SortedRows& shape, int threads) {
  sort_all(x, values, places, has_equal, shape, threads);
}

}  // namespace gt
