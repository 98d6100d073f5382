// Groups of queries, blocks of keys, and operands in the layout that the products read. Included by
// the files of one instruction set only; nothing here may have external linkage.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/attention/attention_path.h"
#include "cpu/attention/products.h"
#include "cpu/matmul/pack.h"

namespace gt {
namespace {

constexpr int kBlock = 96;  // keys whose scores are computed at a time

// Number of queries in a group, one in each lane.
template <int kVectors>
constexpr int kGroup = kVectors * kLanes<float>;
constexpr int kGroupMost = kGroup<kAcross>;

using Numbers = Vector<float>;
constexpr float kLowest = -__builtin_inff();

// Calls work.operator()<V>() with the fewest vectors V, at most kAcross, that hold `queries`. The
// choice depends on the number of queries alone, and no query's sums depend on it.
template <int kVectors = 1, class Work>
inline void for_group(std::int64_t queries, const Work& work) {
  if constexpr (kVectors < kAcross) {
    if (queries > kGroup<kVectors>) {
      return for_group<kVectors + 1>(queries, work);
    }
  }
  work.template operator()<kVectors>();
}

// True where products can read the rows in place. Operands that several groups read are packed
// otherwise: rows a power of 2 apart compete for the same cache sets.
inline bool is_ready(const Rows& source, std::int64_t columns, bool is_read_often) {
  return source.column == 1 && columns % kLanes<float> == 0 &&
         (!is_read_often || source.row == columns);
}

// The rows in place, or where copy_rows copied them.
inline Matrix ready_rows(const Rows& source, std::int64_t columns, bool is_read_often,
                         const float* copied) {
  return is_ready(source, columns, is_read_often) ? Matrix{source.data, source.row}
                                                  : Matrix{copied, up_to(columns, kLanes<float>)};
}

// Copies rows one after the other, padded with zeros to whole vectors, unless they are ready.
inline void copy_rows(const Rows& source, std::int64_t count, std::int64_t columns,
                      bool is_read_often, float* to) {
  if (is_ready(source, columns, is_read_often)) {
    return;
  }
  const std::int64_t width = up_to(columns, kLanes<float>);
  for (std::int64_t row = 0; row < count; ++row, to += width) {
    const float* from = source.data + row * source.row;
    if (source.column == 1) {
      std::memcpy(to, from, static_cast<std::size_t>(columns) * sizeof(float));
    } else {
      for (std::int64_t column = 0; column < columns; ++column) {
        to[column] = from[column * source.column];
      }
    }
    for (std::int64_t column = columns; column < width; ++column) {
      to[column] = 0.0F;
    }
  }
}

// Writes the transpose of [count][columns] to to[columns][kLines], with zeros in lines beyond
// count.
template <int kLines>
inline void turn(const Rows& source, std::int64_t count, std::int64_t columns, float* to) {
  if (count < kLines) {
    std::memset(to, 0, static_cast<std::size_t>(columns * kLines) * sizeof(float));
  }
  const std::int64_t turned = source.column == 1 ? columns / kTurned * kTurned : 0;
  std::int64_t row = 0;
  for (; row + 4 <= count && turned > 0; row += 4) {
    for (std::int64_t column = 0; column < turned; column += kTurned) {
      turn_four(source.data + row * source.row + column, source.row, to + column * kLines + row,
                kLines);
    }
  }
  for (std::int64_t column = 0; column < columns; ++column) {
    for (std::int64_t at = column < turned ? row : 0; at < count; ++at) {
      to[column * kLines + at] = source.data[at * source.row + column * source.column];
    }
  }
}

// Mask, scale and causality of the scores of a group of queries that begins at `query`.
template <int kVectors>
class Hiding {
 public:
  static constexpr std::int64_t kMaskNumbers = kBlock * kGroup<kVectors>;

  // Args: turned, working memory of kMaskNumbers; unused without a mask.
  Hiding(const Head& head, std::int64_t query, float* turned)
      : head_(head),
        query_(query),
        count_(least(kGroup<kVectors>, head.queries - query)),
        turned_(turned) {}

  // Number of keys that some query of the group sees.
  std::int64_t keys() const {
    return head_.is_causal ? least(head_.keys, query_ + count_) : head_.keys;
  }

  // Applies scale, mask and causality to the scores of keys [key, key + rows).
  void apply(std::int64_t key, std::int64_t rows, float* scores) const {
    const std::int64_t numbers = rows * kGroup<kVectors>;
    for (std::int64_t at = 0; at < numbers; at += kLanes<float>) {
      store(scores + at, load(scores + at) * head_.scale);
    }
    if (const Rows& mask = head_.mask; mask.data != nullptr) {
      const float* data = mask.data + query_ * mask.row + key * mask.column;
      turn<kGroup<kVectors>>({data, mask.row, mask.column}, count_, rows, turned_);
      for (std::int64_t at = 0; at < numbers; at += kLanes<float>) {
        store(scores + at, load(scores + at) + load(turned_ + at));
      }
    }
    for (std::int64_t row = head_.is_causal ? 0 : rows; row < rows; ++row) {
      hide(key + row - query_, scores + row * kGroup<kVectors>);
    }
  }

 private:
  // Hides a key from the first `lanes` queries.
  static void hide(std::int64_t lanes, float* scores) {
    for (int lane = 0; lane < kGroup<kVectors> && lane < lanes; ++lane) {
      scores[lane] = kLowest;
    }
  }

  const Head& head_;
  const std::int64_t query_, count_;
  float* turned_;
};

}  // namespace
}  // namespace gt
