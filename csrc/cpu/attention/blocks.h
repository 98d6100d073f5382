// Blocks of scores and the products around them. Included by the files of one instruction set only;
// nothing here may have external linkage.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/attention/attention_path.h"
#include "cpu/matmul/pack.h"
#include "cpu/matmul/tile.h"

namespace gt {
namespace {

#if defined(__AVX512F__)
constexpr int kUp = 8;  // rows of a register tile; widths of heads are mostly multiples of it
constexpr int kAcross = 3;
#elif defined(__AVX2__)
constexpr int kUp = 4;
constexpr int kAcross = 3;
#else
constexpr int kUp = 4;
constexpr int kAcross = 2;
#endif

constexpr int kGroup = kAcross * kLanes<float>;  // queries
constexpr int kBlock = 96;                       // keys: a multiple of kUp and of every kGroup
static_assert(kBlock % kUp == 0 && kBlock % kGroup == 0);

using Numbers = Vector<float>;
constexpr float kLowest = -__builtin_inff();

constexpr std::int64_t up_to(std::int64_t count, std::int64_t step) {
  return (count + step - 1) / step * step;
}

inline std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// Panels of kWidth of the source's [count, depth], across rows; or of its transpose.
template <int kWidth>
void pack_all(const Rows& source, std::int64_t count, std::int64_t depth, bool transposed,
              float* to) {
  const std::int64_t across = transposed ? source.column : source.row;
  const std::int64_t along = transposed ? source.row : source.column;
  for (std::int64_t first = 0; first < count; first += kWidth) {
    pack_numbers<float, float>({source.data + first * across, Element::kFloat32, across, along},
                               kWidth, static_cast<int>(least(kWidth, count - first)), depth, to);
    to += kWidth * depth;
  }
}

// tile[rows][kGroup] (+)= a's panels * b, ld numbers from row to row. rows is rounded up to kUp.
inline void multiply_up(std::int64_t rows, std::int64_t depth, const float* a,
                        std::int64_t panel_numbers, const float* b, float* tile, std::int64_t ld,
                        bool add) {
  for (std::int64_t row = 0; row < rows; row += kUp) {
    multiply_tile<float, kUp, kAcross>(depth, a + row / kUp * panel_numbers, b, tile + row * ld, ld,
                                       add);
  }
}

// What hides or shifts the scores of queries [query, query + kGroup) and one key.
class Hiding {
 public:
  Hiding(const Head& head, std::int64_t query)
      : head_(head), query_(query), count_(least(kGroup, head.queries - query)) {}

  // Keys that any of the queries sees.
  std::int64_t keys() const {
    return head_.is_causal ? least(head_.keys, query_ + count_) : head_.keys;
  }

  // Scores of keys [key, key + rows), with scale, mask and causality.
  void apply(std::int64_t key, std::int64_t rows, float* scores) const {
    for (std::int64_t row = 0; row < rows; ++row) {
      float* at = scores + row * kGroup;
      for (int v = 0; v < kGroup; v += kLanes<float>) {
        store(at + v, load(at + v) * head_.scale);
      }
      if (head_.mask.data != nullptr) {
        const float* mask =
            head_.mask.data + query_ * head_.mask.row + (key + row) * head_.mask.column;
        for (int lane = 0; lane < count_; ++lane) {
          at[lane] += mask[lane * head_.mask.row];
        }
      }
      if (head_.is_causal && key + row > query_) {
        for (int lane = 0; lane < least(kGroup, key + row - query_); ++lane) {
          at[lane] = kLowest;
        }
      }
    }
  }

 private:
  const Head& head_;
  const std::int64_t query_, count_;
};

}  // namespace
}  // namespace gt
