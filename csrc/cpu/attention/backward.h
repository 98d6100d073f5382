// Gradients of one head, group of queries by group and block of keys by block, from scores made
// anew. Included by the files of one instruction set only; nothing here may have external linkage.
//
//   P = exp(S - logsumexp)      dP = dO V^T      dS = P (dP - rowsum(dO O)) scale
//   dQ^T += K^T dS^T            dK^T += Q^T dS   dV^T += dO^T P
//
// Where dropout multiplies P by D before V: dP = (dO V^T) D, and dV^T += dO^T (P D).
#pragma once

#include "cpu/attention/kept.h"

namespace gt {
namespace {

// Working memory of a head's gradients.
struct Backward {
  float *key, *key_transposed, *value;        // panels of kUp rows
  float *query, *grad;                        // one group's, panels of kGroup, a query a lane
  float *query_transposed, *grad_transposed;  // panels of kUp of their columns
  float *shares, *scores_grad;                // P^T and dS^T of a block
  float* kept;                                // factors of dropout
  float* turned;                              // either, panels of kGroup keys
  float* grad_query;                          // dQ^T of the group
  float *grad_key, *grad_value;               // dK^T and dV^T of all keys

  // Gives out memory, or counts it where work is null.
  std::int64_t place(const Head& head, float* work) {
    std::int64_t used = 0;
    const auto take = [&](float*& part, std::int64_t numbers) {
      part = work == nullptr ? nullptr : work + used;
      used += up_to(numbers, 16);
    };
    const std::int64_t keys = up_to(head.keys, kBlock);
    const std::int64_t width = up_to(head.width, kUp);
    const std::int64_t value_width = up_to(head.value_width, kUp);
    take(key, keys * head.width);
    take(key_transposed, width * head.keys);
    take(value, keys * head.value_width);
    take(query, kGroup * head.width);
    take(grad, kGroup * head.value_width);
    take(query_transposed, kGroup * width);
    take(grad_transposed, kGroup * value_width);
    take(shares, kGroup * kBlock);
    take(scores_grad, kGroup * kBlock);
    take(kept, kGroup * kBlock);
    take(turned, kGroup * kBlock);
    take(grad_query, kGroup * width);
    take(grad_key, width * keys);
    take(grad_value, value_width * keys);
    return used;
  }
};

inline std::int64_t backward_numbers(const Head& head) { return Backward{}.place(head, nullptr); }

// For each query of a group: its logsumexp and the sum of dO O.
struct GroupTerms {
  float logsumexp[kGroup];
  float product[kGroup];
};

inline GroupTerms terms_of(const Head& head, const Rows& grad, std::int64_t begin,
                           std::int64_t count) {
  GroupTerms terms = {};
  for (std::int64_t lane = 0; lane < count; ++lane) {
    const float* output = head.output + (begin + lane) * head.value_width;
    const float* from = grad.data + (begin + lane) * grad.row;
    float sum = 0;
    for (std::int64_t column = 0; column < head.value_width; ++column) {
      sum += output[column] * from[column * grad.column];
    }
    terms.product[lane] = sum;
    const float logsumexp = head.logsumexp[begin + lane];
    // A query that sees nothing: exp(-inf - 0) is 0.
    terms.logsumexp[lane] = logsumexp == kLowest ? 0.0F : logsumexp;
  }
  return terms;
}

// shares: scores to P^T. scores_grad: dP^T to dS^T.
inline void turn_scores(const GroupTerms& terms, float scale, std::int64_t rows, float* shares,
                        float* scores_grad) {
  for (int v = 0; v < kGroup; v += kLanes<float>) {
    const Numbers logsumexp = load(terms.logsumexp + v);
    const Numbers product = load(terms.product + v);
    for (std::int64_t row = 0; row < rows; ++row) {
      float* share = shares + row * kGroup + v;
      float* grad = scores_grad + row * kGroup + v;
      const Numbers value = exponential(load(share) - logsumexp);
      store(share, value);
      store(grad, value * (load(grad) - product) * scale);
    }
  }
}

// sums[outputs][keys] += a^T * block, where block is [rows of keys][kGroup].
inline void add_to_keys(const Backward& work, const float* block, std::int64_t rows,
                        std::int64_t count, const float* a, std::int64_t outputs, float* sums,
                        std::int64_t ld) {
  pack_all<kGroup>({block, kGroup, 1}, rows, count, false, work.turned);
  for (std::int64_t first = 0; first < rows; first += kGroup) {
    multiply_up(outputs, count, a, kUp * count, work.turned + first * count, sums + first, ld,
                true);
  }
}

inline void backward_group(const Head& head, const HeadGradient& gradient, const Backward& work,
                           std::int64_t begin) {
  const std::int64_t count = least(kGroup, head.queries - begin);
  const std::int64_t width = up_to(head.width, kUp);
  const std::int64_t value_width = up_to(head.value_width, kUp);
  const std::int64_t ld = up_to(head.keys, kBlock);
  Rows query = head.query, grad = gradient.grad;
  query.data += begin * query.row;
  grad.data += begin * grad.row;
  pack_all<kGroup>(query, count, head.width, false, work.query);
  pack_all<kGroup>(grad, count, head.value_width, false, work.grad);
  pack_all<kUp>(query, head.width, count, true, work.query_transposed);
  pack_all<kUp>(grad, head.value_width, count, true, work.grad_transposed);
  const GroupTerms terms = terms_of(head, gradient.grad, begin, count);
  std::memset(work.grad_query, 0, static_cast<std::size_t>(width * kGroup) * sizeof(float));
  const Hiding hiding(head, begin);
  const Kept kept(head, begin, work.kept);
  const std::int64_t keys = hiding.keys();
  for (std::int64_t key = 0; key < keys; key += kBlock) {
    const std::int64_t rows = least(kBlock, keys - key);
    multiply_up(rows, head.width, work.key + key * head.width, kUp * head.width, work.query,
                work.shares, kGroup, false);
    hiding.apply(key, rows, work.shares);
    multiply_up(rows, head.value_width, work.value + key * head.value_width, kUp * head.value_width,
                work.grad, work.scores_grad, kGroup, false);
    kept.draw(key, rows);
    kept.apply(rows, work.scores_grad);
    turn_scores(terms, head.scale, rows, work.shares, work.scores_grad);
    kept.apply(rows, work.shares);
    multiply_up(width, rows, work.key_transposed + key * kUp, kUp * head.keys, work.scores_grad,
                work.grad_query, kGroup, true);
    add_to_keys(work, work.shares, rows, count, work.grad_transposed, value_width,
                work.grad_value + key, ld);
    add_to_keys(work, work.scores_grad, rows, count, work.query_transposed, width,
                work.grad_key + key, ld);
  }
  for (std::int64_t lane = 0; lane < count; ++lane) {
    for (std::int64_t column = 0; column < head.width; ++column) {
      gradient.grad_query[(begin + lane) * head.width + column] =
          work.grad_query[column * kGroup + lane];
    }
  }
}

// out[rows][columns] from its transpose.
inline void write_turned(const float* from, std::int64_t ld, std::int64_t rows,
                         std::int64_t columns, float* out) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      out[row * columns + column] = from[column * ld + row];
    }
  }
}

void backward(const Head& head, const HeadGradient& gradient, float* memory) {
  Backward work;
  work.place(head, memory);
  const std::int64_t ld = up_to(head.keys, kBlock);
  pack_all<kUp>(head.key, head.keys, head.width, false, work.key);
  pack_all<kUp>(head.key, head.width, head.keys, true, work.key_transposed);
  pack_all<kUp>(head.value, head.keys, head.value_width, false, work.value);
  const auto clear = [&](float* sums, std::int64_t columns) {
    std::memset(sums, 0, static_cast<std::size_t>(up_to(columns, kUp) * ld) * sizeof(float));
  };
  clear(work.grad_key, head.width);
  clear(work.grad_value, head.value_width);
  for (std::int64_t begin = 0; begin < head.queries; begin += kGroup) {
    backward_group(head, gradient, work, begin);
  }
  write_turned(work.grad_key, ld, head.keys, head.width, gradient.grad_key);
  write_turned(work.grad_value, ld, head.keys, head.value_width, gradient.grad_value);
}

}  // namespace
}  // namespace gt
