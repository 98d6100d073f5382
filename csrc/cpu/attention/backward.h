// Gradients of one head, group of queries by group and block of keys by block, from scores computed
// again. Included by the files of one instruction set only; nothing here may have external linkage.
//
//   P = exp(S - logsumexp)      dP = dO V^T      dS = P (dP - rowsum(dO O)) scale
//   dQ += dS K                  dK += dS^T Q     dV += P^T dO
//
// With dropout, P is multiplied by D before V: dP = (dO V^T) D, and dV += (P D)^T dO. A block holds
// P^T and dS^T with one query in each lane, the layout in which all three sums read them.
#pragma once

#include "cpu/attention/kept.h"

namespace gt {
namespace {

// Working memory for a head's gradients. Copies exist for operands that cannot be read in place,
// sums for widths that are not whole vectors.
struct Backward {
  float *key, *value;                 // copies
  float *query, *grad;                // one group's copies
  float *query_turned, *grad_turned;  // one group's, with a query in each lane
  float* output_turned;               // likewise
  float *shares, *scores_grad;        // P^T and dS^T of one block
  float *kept, *mask;                 // factors of dropout, and the mask, of one block
  float* grad_query;                  // the group's sums
  float *grad_key, *grad_value;       // sums

  // Assigns the memory at `work`, or only counts it where work is null. Returns the numbers used.
  std::int64_t place(const Head& head, float* work) {
    std::int64_t used = 0;
    const auto take = [&](float*& part, std::int64_t numbers) {
      part = work == nullptr ? nullptr : work + used;
      used += up_to(numbers, 16);
    };
    const std::int64_t width = up_to(head.width, kLanes<float>);
    const std::int64_t value_width = up_to(head.value_width, kLanes<float>);
    take(key, head.keys * width);
    take(value, head.keys * value_width);
    take(query, kGroupMost * width);
    take(grad, kGroupMost * value_width);
    take(query_turned, kGroupMost * head.width);
    take(grad_turned, kGroupMost * head.value_width);
    take(output_turned, kGroupMost * head.value_width);
    take(shares, kGroupMost * kBlock);
    take(scores_grad, kGroupMost * kBlock);
    take(kept, kGroupMost * kBlock);
    take(mask, kGroupMost * kBlock);
    take(grad_query, kGroupMost * width);
    take(grad_key, head.keys * width);
    take(grad_value, head.keys * value_width);
    return used;
  }
};

inline std::int64_t backward_numbers(const Head& head) { return Backward{}.place(head, nullptr); }

// Sums [rows][ld] in the result itself, or in working memory where its rows are not whole vectors.
struct Sums {
  float* data;
  std::int64_t ld;

  Sums(float* result, float* work, std::int64_t rows, std::int64_t columns)
      : data(columns % kLanes<float> == 0 ? result : work), ld(up_to(columns, kLanes<float>)) {
    for (std::int64_t at = 0; at < rows * ld; at += kLanes<float>) {
      store(data + at, Numbers{});
    }
  }

  void write(float* result, std::int64_t rows, std::int64_t columns) const {
    for (std::int64_t row = 0; row < rows && data != result; ++row) {
      std::memcpy(result + row * columns, data + row * ld,
                  static_cast<std::size_t>(columns) * sizeof(float));
    }
  }
};

// Per-query terms of a group: the logsumexp, and the row sum of dO O.
template <int kVectors>
struct GroupTerms {
  float logsumexp[kGroup<kVectors>] = {};
  float product[kGroup<kVectors>];

  GroupTerms(const Head& head, const Backward& work, std::int64_t begin, std::int64_t count) {
    // The products are rounded before they are summed, which takes a pass of its own.
    float* products = work.output_turned;
    const std::int64_t numbers = head.value_width * kGroup<kVectors>;
    for (std::int64_t at = 0; at < numbers; at += kLanes<float>) {
      store(products + at, load(products + at) * load(work.grad_turned + at));
    }
    for (int v = 0; v < kGroup<kVectors>; v += kLanes<float>) {
      Numbers sum = {};
      for (std::int64_t at = v; at < numbers; at += kGroup<kVectors>) {
        sum += load(products + at);
      }
      store(product + v, sum);
    }
    for (std::int64_t lane = 0; lane < count; ++lane) {
      // A query that sees no key has weights of 0: exp(-inf - 0).
      const float value = head.logsumexp[begin + lane];
      logsumexp[lane] = value == kLowest ? 0.0F : value;
    }
  }
};

// In place: shares from scores to P^T, scores_grad from dP^T to dS^T.
template <int kVectors>
inline void turn_scores(const GroupTerms<kVectors>& terms, float scale, std::int64_t rows,
                        float* shares, float* scores_grad) {
  for (int v = 0; v < kGroup<kVectors>; v += kLanes<float>) {
    const Numbers logsumexp = load(terms.logsumexp + v);
    const Numbers product = load(terms.product + v);
    for (std::int64_t row = 0; row < rows; ++row) {
      float* share = shares + row * kGroup<kVectors> + v;
      float* grad = scores_grad + row * kGroup<kVectors> + v;
      const Numbers value = exponential(load(share) - logsumexp);
      store(share, value);
      store(grad, value * (load(grad) - product) * scale);
    }
  }
}

inline Rows from_row(const Rows& rows, std::int64_t begin) {
  return {rows.data + begin * rows.row, rows.row, rows.column};
}

// A head's keys and values, which all groups read, and the gradients, which they add to.
struct HeadSums {
  Matrix key, value;
  Sums grad_key, grad_value;
};

template <int kVectors>
inline void backward_group(const Head& head, const HeadGradient& gradient, const Backward& work,
                           const HeadSums& sums, std::int64_t begin) {
  constexpr std::int64_t kLines = kGroup<kVectors>;
  const std::int64_t count = least(kLines, head.queries - begin);
  const std::int64_t width = up_to(head.width, kLanes<float>);
  const std::int64_t value_width = up_to(head.value_width, kLanes<float>);
  const Rows query_rows = from_row(head.query, begin), grad_rows = from_row(gradient.grad, begin);
  turn<kLines>(query_rows, count, head.width, work.query_turned);
  turn<kLines>(grad_rows, count, head.value_width, work.grad_turned);
  turn<kLines>({head.output + begin * head.value_width, head.value_width, 1}, count,
               head.value_width, work.output_turned);
  // The rows of a group are read once for each block of keys.
  copy_rows(query_rows, count, head.width, head.keys > kBlock, work.query);
  copy_rows(grad_rows, count, head.value_width, head.keys > kBlock, work.grad);
  const Matrix query = ready_rows(query_rows, head.width, head.keys > kBlock, work.query);
  const Matrix grad = ready_rows(grad_rows, head.value_width, head.keys > kBlock, work.grad);
  const GroupTerms<kVectors> terms(head, work, begin, count);
  float* result = gradient.grad_query + begin * head.width;
  const Sums grad_query(result, work.grad_query, count, head.width);
  const Hiding<kVectors> hiding(head, begin, work.mask);
  const Kept<kVectors> kept(head, begin, work.kept);
  const std::int64_t keys = hiding.keys();
  for (std::int64_t first = 0; first < keys; first += kBlock) {
    const std::int64_t rows = least(kBlock, keys - first);
    const Matrix key = {sums.key.data + first * sums.key.row, sums.key.row};
    multiply<kVectors, Stored::kAsIs>(rows, head.width, key, {work.query_turned, kLines},
                                      work.shares, kLines, false);
    hiding.apply(first, rows, work.shares);
    multiply<kVectors, Stored::kAsIs>(rows, head.value_width,
                                      {sums.value.data + first * sums.value.row, sums.value.row},
                                      {work.grad_turned, kLines}, work.scores_grad, kLines, false);
    kept.draw(first, rows);
    kept.apply(rows, work.scores_grad);
    turn_scores(terms, head.scale, rows, work.shares, work.scores_grad);
    kept.apply(rows, work.shares);
    multiply_wide<Stored::kTransposed>(count, width, rows, {work.scores_grad, kLines}, key,
                                       grad_query.data, grad_query.ld);
    multiply_wide<Stored::kAsIs>(rows, value_width, count, {work.shares, kLines}, grad,
                                 sums.grad_value.data + first * value_width, value_width);
    multiply_wide<Stored::kAsIs>(rows, width, count, {work.scores_grad, kLines}, query,
                                 sums.grad_key.data + first * width, width);
  }
  grad_query.write(result, count, head.width);
}

void backward(const Head& head, const HeadGradient& gradient, float* memory) {
  Backward work;
  work.place(head, memory);
  const bool is_read_often = head.queries > kGroupMost;
  copy_rows(head.key, head.keys, head.width, is_read_often, work.key);
  copy_rows(head.value, head.keys, head.value_width, is_read_often, work.value);
  const HeadSums sums = {ready_rows(head.key, head.width, is_read_often, work.key),
                         ready_rows(head.value, head.value_width, is_read_often, work.value),
                         {gradient.grad_key, work.grad_key, head.keys, head.width},
                         {gradient.grad_value, work.grad_value, head.keys, head.value_width}};
  for (std::int64_t begin = 0; begin < head.queries; begin += kGroupMost) {
    for_group(head.queries - begin,
              [&]<int kVectors>() { backward_group<kVectors>(head, gradient, work, sums, begin); });
  }
  sums.grad_key.write(gradient.grad_key, head.keys, head.width);
  sums.grad_value.write(gradient.grad_value, head.keys, head.value_width);
}

}  // namespace
}  // namespace gt
