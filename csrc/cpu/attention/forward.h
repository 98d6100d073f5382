// One group of queries against all keys. Included by the files of one instruction set only; nothing
// here may have external linkage.
#pragma once

#include "cpu/attention/kept.h"

namespace gt {
namespace {

// A running softmax: the greatest score of each query so far, and the sum of exp(score - greatest).
struct Softmax {
  float greatest[kGroup];
  float sum[kGroup];
};

inline Numbers greater(Numbers a, Numbers b) { return a > b ? a : b; }

// Turns scores into exp(score - greatest) and makes the older sums and outputs fit.
inline void advance(Softmax& softmax, std::int64_t rows, float* scores, std::int64_t outputs,
                    float* output) {
  for (int v = 0; v < kGroup; v += kLanes<float>) {
    const Numbers before = load(softmax.greatest + v);
    Numbers greatest = before;
    for (std::int64_t row = 0; row < rows; ++row) {
      greatest = greater(load(scores + row * kGroup + v), greatest);
    }
    // A query that sees nothing yet has no greatest score: its exps are 0 by any other number.
    const Numbers base = greatest == kLowest ? Numbers{} : greatest;
    Numbers sum = {};
    for (std::int64_t row = 0; row < rows; ++row) {
      float* at = scores + row * kGroup + v;
      const Numbers share = exponential(load(at) - base);
      sum += share;
      store(at, share);
    }
    const Numbers fit = exponential(before - base);
    store(softmax.sum + v, load(softmax.sum + v) * fit + sum);
    store(softmax.greatest + v, greatest);
    for (std::int64_t row = 0; row < outputs; ++row) {
      float* at = output + row * kGroup + v;
      store(at, load(at) * fit);
    }
  }
}

inline std::int64_t packed_numbers(const Head& head) {
  return up_to(head.keys, kBlock) * head.width + up_to(head.value_width, kUp) * head.keys;
}

inline std::int64_t forward_numbers(const Head& head) {
  return kGroup * (head.width + 2 * kBlock + up_to(head.value_width, kUp));
}

void pack_keys(const Head& head, float* packed) {
  pack_all<kUp>(head.key, head.keys, head.width, false, packed);
  pack_all<kUp>(head.value, head.value_width, head.keys, true,
                packed + up_to(head.keys, kBlock) * head.width);
}

// Args: output, [value_width][kGroup].
inline void write_group(const Head& head, std::int64_t begin, const Softmax& softmax,
                        const float* output) {
  const std::int64_t count = least(kGroup, head.queries - begin);
  for (std::int64_t lane = 0; lane < count; ++lane) {
    const float sum = softmax.sum[lane];
    const float share = sum == 0.0F ? 0.0F : 1.0F / sum;
    float* to = head.output + (begin + lane) * head.value_width;
    for (std::int64_t column = 0; column < head.value_width; ++column) {
      to[column] = output[column * kGroup + lane] * share;
    }
    head.logsumexp[begin + lane] = softmax.greatest[lane] + __builtin_logf(sum);
  }
}

void forward(const Head& head, const float* packed, std::int64_t begin, float* work) {
  float* query = work;
  float* scores = query + kGroup * head.width;
  float* output = scores + kGroup * kBlock;
  const float* values = packed + up_to(head.keys, kBlock) * head.width;
  const std::int64_t outputs = up_to(head.value_width, kUp);
  const Kept kept(head, begin, output + kGroup * outputs);
  Rows from = head.query;
  from.data += begin * from.row;
  pack_all<kGroup>(from, least(kGroup, head.queries - begin), head.width, false, query);
  std::memset(output, 0, static_cast<std::size_t>(outputs * kGroup) * sizeof(float));
  Softmax softmax = {};
  for (float& greatest : softmax.greatest) {
    greatest = kLowest;
  }
  const Hiding hiding(head, begin);
  const std::int64_t keys = hiding.keys();
  for (std::int64_t key = 0; key < keys; key += kBlock) {
    const std::int64_t rows = least(kBlock, keys - key);
    multiply_up(rows, head.width, packed + key * head.width, kUp * head.width, query, scores,
                kGroup, false);
    hiding.apply(key, rows, scores);
    advance(softmax, rows, scores, outputs, output);
    kept.draw(key, rows);
    kept.apply(rows, scores);
    multiply_up(outputs, rows, values + key * kUp, kUp * head.keys, scores, output, kGroup, true);
  }
  write_group(head, begin, softmax, output);
}

}  // namespace
}  // namespace gt
