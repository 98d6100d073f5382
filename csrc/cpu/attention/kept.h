// Dropout's choice of the weights to keep, for a group of queries and a block of keys. Included by
// the files of one instruction set only; nothing here may have external linkage.
//
// Each query q has a seed: word k % 4 of Philox's block k / 4 under this seed decides about key k.
// The choice is the same for every group, block and thread, and for the gradient.
#pragma once

#include "algo/philox.h"
#include "cpu/attention/blocks.h"

namespace gt {
namespace {

constexpr int kWords = 4;  // words in a block of Philox
static_assert(kBlock % kWords == 0);

template <int kVectors>
class Kept {
  static constexpr int kLines = kGroup<kVectors>;

 public:
  // Args: factors, [kBlock][queries], written by `draw`; unused without dropout.
  Kept(const Head& head, std::int64_t query, float* factors) : head_(head), factors_(factors) {
    const std::int64_t count = least(kLines, head.queries - query);
    for (std::int64_t lane = 0; lane < count && head.seeds.data != nullptr; ++lane) {
      seeds_[lane] = static_cast<std::uint64_t>(head.seeds.data[(query + lane) * head.seeds.step]);
    }
  }

  // Draws the factors of keys [key, key + rows): 0, or the factor that preserves the mean. `key`
  // must start a block.
  void draw(std::int64_t key, std::int64_t rows) const {
    if (head_.seeds.data == nullptr) {
      return;
    }
    std::uint32_t words[kWords][kLines];
    for (std::int64_t row = 0; row < rows; row += kWords) {
      philox(static_cast<std::uint32_t>((key + row) / kWords), words);
      for (int word = 0; word < kWords; ++word) {
        float* to = factors_ + (row + word) * kLines;
        for (int lane = 0; lane < kLines; ++lane) {
          to[lane] = words[word][lane] > head_.seeds.dropped_last ? head_.seeds.kept_factor : 0.0F;
        }
      }
    }
  }

  // Multiplies numbers [rows][queries] by the factors drawn last.
  void apply(std::int64_t rows, float* numbers) const {
    if (head_.seeds.data == nullptr) {
      return;
    }
    for (std::int64_t at = 0; at < rows * kLines; at += kLanes<float>) {
      store(numbers + at, load(numbers + at) * load(factors_ + at));
    }
  }

 private:
  // Computes one Philox block of all queries, one query in each lane.
  void philox(std::uint32_t block, std::uint32_t (*words)[kLines]) const {
    for (int lane = 0; lane < kLines; ++lane) {
      std::uint32_t made[kWords];
      philox_block({seeds_[lane], 0}, block, made);
      for (int word = 0; word < kWords; ++word) {
        words[word][lane] = made[word];
      }
    }
  }

  const Head& head_;
  float* factors_;
  std::uint64_t seeds_[kLines] = {};
};

}  // namespace
}  // namespace gt
