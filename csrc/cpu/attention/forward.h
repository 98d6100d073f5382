// One group of queries against all keys. Included by the files of one instruction set only; nothing
// here may have external linkage.
#pragma once

#include "cpu/attention/kept.h"

namespace gt {
namespace {

// A running softmax: the greatest score of each query so far, the sum of exp(score - greatest), and
// the factor that rescales earlier sums to the new greatest score.
template <int kVectors>
struct Softmax {
  float greatest[kGroup<kVectors>];
  float sum[kGroup<kVectors>];
  float fit[kGroup<kVectors>];
};

inline Numbers greater(Numbers a, Numbers b) { return a > b ? a : b; }

// Turns scores into exp(score - greatest).
template <int kVectors>
inline void advance(Softmax<kVectors>& softmax, std::int64_t rows, float* scores) {
  for (int v = 0; v < kGroup<kVectors>; v += kLanes<float>) {
    const Numbers before = load(softmax.greatest + v);
    Numbers greatest = before;
    for (std::int64_t row = 0; row < rows; ++row) {
      greatest = greater(load(scores + row * kGroup<kVectors> + v), greatest);
    }
    // A query that sees no key yet has no greatest score; its exponentials are 0 with any base.
    const Numbers base = greatest == kLowest ? Numbers{} : greatest;
    Numbers sum = {};
    for (std::int64_t row = 0; row < rows; ++row) {
      float* at = scores + row * kGroup<kVectors> + v;
      const Numbers share = exponential(load(at) - base);
      sum += share;
      store(at, share);
    }
    const Numbers fit = exponential(before - base);
    store(softmax.sum + v, load(softmax.sum + v) * fit + sum);
    store(softmax.greatest + v, greatest);
    store(softmax.fit + v, fit);
  }
}

// Multiplies each row by its factor.
inline void scale_rows(std::int64_t rows, std::int64_t columns, const float* factors, float* out) {
  for (std::int64_t row = 0; row < rows; ++row, out += columns) {
    for (std::int64_t column = 0; column < columns; column += kLanes<float>) {
      store(out + column, load(out + column) * factors[row]);
    }
  }
}

inline bool has_groups(const Head& head) { return head.queries > kGroupMost; }

// Returns 0 where keys are read in place. They are read by rows only, so a row need not be whole
// vectors.
inline std::int64_t key_numbers(const Head& head) {
  return is_ready(head.key, head.width, has_groups(head))
             ? 0
             : head.keys * up_to(head.width, kLanes<float>);
}

inline std::int64_t packed_numbers(const Head& head) {
  return key_numbers(head) + (is_ready(head.value, head.value_width, has_groups(head))
                                  ? 0
                                  : head.keys * up_to(head.value_width, kLanes<float>));
}

void pack_keys(const Head& head, float* packed) {
  copy_rows(head.key, head.keys, head.width, has_groups(head), packed);
  copy_rows(head.value, head.keys, head.value_width, has_groups(head), packed + key_numbers(head));
}

inline std::int64_t forward_numbers(const Head& head) {
  return kGroupMost * (head.width + 3 * kBlock + up_to(head.value_width, kLanes<float>));
}

// Args: output, [queries][columns] of whole vectors, not yet divided by the sums.
template <int kVectors>
inline void write_group(const Head& head, std::int64_t begin, const Softmax<kVectors>& softmax,
                        const float* output, std::int64_t columns) {
  const std::int64_t count = least(kGroup<kVectors>, head.queries - begin);
  for (std::int64_t lane = 0; lane < count; ++lane) {
    const float sum = softmax.sum[lane];
    const float share = sum == 0.0F ? 0.0F : 1.0F / sum;
    const float* from = output + lane * columns;
    float* to = head.output + (begin + lane) * head.value_width;
    for (std::int64_t column = 0; column < head.value_width; ++column) {
      to[column] = from[column] * share;
    }
    head.logsumexp[begin + lane] = softmax.greatest[lane] + __builtin_logf(sum);
  }
}

template <int kVectors>
inline void forward_group(const Head& head, const float* packed, std::int64_t begin, float* work) {
  constexpr std::int64_t kLines = kGroup<kVectors>;
  const std::int64_t columns = up_to(head.value_width, kLanes<float>);
  const std::int64_t count = least(kLines, head.queries - begin);
  const Matrix key = ready_rows(head.key, head.width, has_groups(head), packed);
  const Matrix value =
      ready_rows(head.value, head.value_width, has_groups(head), packed + key_numbers(head));
  float* output = work;
  float* scores = output + kLines * columns;
  float* mask = scores + kLines * kBlock;
  float* factors = mask + kLines * kBlock;
  float* query = factors + kLines * kBlock;
  const Kept<kVectors> kept(head, begin, factors);
  turn<kLines>({head.query.data + begin * head.query.row, head.query.row, head.query.column}, count,
               head.width, query);
  std::memset(output, 0, static_cast<std::size_t>(count * columns) * sizeof(float));
  Softmax<kVectors> softmax = {};
  for (float& greatest : softmax.greatest) {
    greatest = kLowest;
  }
  const Hiding<kVectors> hiding(head, begin, mask);
  const std::int64_t keys = hiding.keys();
  for (std::int64_t first = 0; first < keys; first += kBlock) {
    const std::int64_t rows = least(kBlock, keys - first);
    multiply<kVectors, Stored::kAsIs>(rows, head.width, {key.data + first * key.row, key.row},
                                      {query, kLines}, scores, kLines, false);
    hiding.apply(first, rows, scores);
    advance(softmax, rows, scores);
    kept.draw(first, rows);
    kept.apply(rows, scores);
    if (first > 0) {
      scale_rows(count, columns, softmax.fit, output);
    }
    multiply_wide<Stored::kTransposed>(count, columns, rows, {scores, kLines},
                                       {value.data + first * value.row, value.row}, output,
                                       columns);
  }
  write_group(head, begin, softmax, output, columns);
}

void forward(const Head& head, const float* packed, std::int64_t begin, float* work) {
  for_group(head.queries - begin,
            [&]<int kVectors>() { forward_group<kVectors>(head, packed, begin, work); });
}

}  // namespace
}  // namespace gt
