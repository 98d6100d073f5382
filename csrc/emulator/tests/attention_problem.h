// Attention and its gradients on random operands, next to float64 results, for tests of the
// kernels.
#pragma once

#include <algorithm>
#include <optional>
#include <random>

#include "cuda/attention.h"
#include "cuda/worker_kernels.h"
#include "emulator/machine/instructions.h"
#include "emulator/tests/check.h"

namespace gt::testing {

using emulator::Buffer;
using emulator::FaultKind;
using emulator::Half;
using emulator::launch;
using emulator::Launch;

using Matrix = std::vector<std::vector<double>>;

struct Size {
  std::uint32_t batches, heads, sharing;
  std::int32_t queries, keys;
  std::uint32_t width;
  bool is_causal = false;
  double dropout_p = 0;
};

inline Matrix zeros(std::int32_t rows, std::size_t columns) {
  return Matrix(static_cast<std::size_t>(rows), std::vector<double>(columns));
}

// Random [b, t, h, width], the layout of a layer's projection, in which heads are not contiguous.
struct Operand {
  Operand(const char* name, Half type, std::uint32_t batches, std::uint32_t heads,
          std::int32_t rows, std::uint32_t width, unsigned seed)
      : type(type), width(width), row(heads * width + 8), batch(rows * row) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    std::vector<std::uint16_t> values(static_cast<std::size_t>(batches * batch));
    std::generate(values.begin(), values.end(),
                  [&] { return emulator::from_float(type, normal(random)); });
    buffer.emplace(name, values);
  }

  AttentionRows rows() { return {buffer->data(), row, width, batch}; }
  Matrix of_head(std::uint32_t b, std::uint32_t head, std::int32_t count) {
    Matrix made = zeros(count, width);
    for (std::int32_t r = 0; r < count; ++r) {
      for (std::uint32_t c = 0; c < width; ++c) {
        made[static_cast<std::size_t>(r)][c] = double{
            emulator::to_float(type, buffer->data()[b * batch + r * row + head * width + c])};
      }
    }
    return made;
  }

  Half type;
  std::uint32_t width;
  std::int64_t row, batch;
  std::optional<Buffer<std::uint16_t>> buffer;
};

// Expected results of one head, and their intermediate values.
struct Expected {
  Matrix output, grad_query, grad_key, grad_value;
  std::vector<double> logsumexp;
};

struct Problem {
  Problem(Half type, Size size)
      : type(type),
        size(size),
        query("query", type, size.batches, size.heads, size.queries, size.width, 1),
        key("key", type, size.batches, key_heads(), size.keys, size.width, 2),
        value("value", type, size.batches, key_heads(), size.keys, size.width, 3),
        grad("grad", type, size.batches, size.heads, size.queries, size.width, 4),
        output("output", rows() * size.width),
        grad_query("grad_query", rows() * size.width),
        grad_key("grad_key", key_rows() * size.width),
        grad_value("grad_value", key_rows() * size.width),
        logsumexp("logsumexp", rows()),
        products("products", rows()),
        seeds("seeds", seed_values()) {
    call.query = query.rows();
    call.key = key.rows();
    call.value = value.rows();
    if (size.dropout_p > 0) {
      call.seeds = seeds.data();
      call.dropped_last = static_cast<std::uint32_t>(size.dropout_p * 4294967296.0) - 1;
      call.kept_factor = static_cast<float>(1 / (1 - size.dropout_p));
    }
    call.heads = size.heads;
    call.sharing = size.sharing;
    call.width = size.width;
    call.is_causal = size.is_causal;
    call.queries = size.queries;
    call.keys = size.keys;
    call.scale = static_cast<float>(1 / std::sqrt(size.width));
    call.output = output.data();
    call.logsumexp = logsumexp.data();
    gradient = {grad.rows(), products.data(), grad_query.data(), grad_key.data(),
                grad_value.data()};
  }

  std::uint32_t key_heads() const { return size.heads / size.sharing; }
  std::size_t rows() const {
    return std::size_t{size.batches} * size.heads * static_cast<std::size_t>(size.queries);
  }
  std::size_t key_rows() const {
    return std::size_t{size.batches} * key_heads() * static_cast<std::size_t>(size.keys);
  }
  std::vector<std::int64_t> seed_values() const {
    std::mt19937_64 random(5);
    std::vector<std::int64_t> values(rows());
    std::generate(values.begin(), values.end(),
                  [&] { return static_cast<std::int64_t>(random()); });
    return values;
  }

  template <class Tile>
  Launch grid(std::int32_t count, std::uint32_t heads, std::uint64_t seed) const {
    Launch wanted;
    const auto rows = static_cast<std::int32_t>(Tile::kRows);
    wanted.grid = {static_cast<unsigned>((count + rows - 1) / rows), heads, size.batches};
    wanted.block.x = Tile::kThreads;
    wanted.seed = seed;
    wanted.steps_max = 40'000'000;
    return wanted;
  }
  template <class Tile>
  Launch tiles(std::int32_t count, std::uint32_t heads, std::uint64_t seed) const {
    Launch wanted = grid<Tile>(count, heads, seed);
    wanted.shared_bytes = Tile::kSharedBytes;
    return wanted;
  }

  template <class Kernel>
  void forward(Kernel kernel, std::uint64_t seed) {
    const Launch wanted = is_wide()
                              ? tiles<AttentionForwardTile<128>>(size.queries, size.heads, seed)
                              : tiles<AttentionForwardTile<64>>(size.queries, size.heads, seed);
    add(launch(wanted, [&] { kernel(call); }));
  }
  void multiply(std::uint64_t seed) {
    const Launch wanted = grid<AttentionProductsTile>(size.queries, size.heads, seed);
    launch(wanted, [&] {
      type == Half::kBfloat16 ? gt_attention_products_bf16(call, gradient)
                              : gt_attention_products_f16(call, gradient);
    });
  }
  template <class Kernel>
  void backward_query(Kernel kernel, std::uint64_t seed) {
    const Launch wanted = is_wide() ? tiles<AttentionQueryTile<128>>(size.queries, size.heads, seed)
                                    : tiles<AttentionQueryTile<64>>(size.queries, size.heads, seed);
    add(launch(wanted, [&] { kernel(call, gradient); }));
  }
  template <class Kernel>
  void backward_key(Kernel kernel, std::uint64_t seed) {
    const Launch wanted = is_wide() ? tiles<AttentionKeyTile<128>>(size.keys, key_heads(), seed)
                                    : tiles<AttentionKeyTile<64>>(size.keys, key_heads(), seed);
    add(launch(wanted, [&] { kernel(call, gradient); }));
  }

  bool is_wide() const { return size.width > 64; }
  void add(const emulator::Statistics& one) { bank_conflicts += one.bank_conflicts; }

  // 0, or the factor that preserves the mean.
  double kept(std::size_t row, std::size_t column) {
    std::uint32_t words[4];
    philox_block({static_cast<std::uint64_t>(seeds.data()[row]), 0}, column / 4, words);
    const bool is_kept = call.seeds == nullptr || words[column % 4] > call.dropped_last;
    return !is_kept ? 0 : 1 / (1 - size.dropout_p);
  }

  // Adds to the gradients of key and value, because heads share them.
  void expect_head(std::uint32_t b, std::uint32_t head, Expected& to) {
    const Matrix q = query.of_head(b, head, size.queries);
    const Matrix k = key.of_head(b, head / size.sharing, size.keys);
    const Matrix v = value.of_head(b, head / size.sharing, size.keys);
    const Matrix d = grad.of_head(b, head, size.queries);
    to.output = to.grad_query = zeros(size.queries, size.width);
    to.logsumexp.clear();
    const std::size_t first = (std::size_t{b} * size.heads + head) * q.size();
    const auto dot = [](const auto& x, const auto& y) {
      double sum = 0;
      for (std::size_t c = 0; c < x.size(); ++c) {
        sum += x[c] * y[c];
      }
      return sum;
    };
    for (std::size_t t = 0; t < q.size(); ++t) {
      const std::size_t seen = size.is_causal ? std::min(t + 1, k.size()) : k.size();
      std::vector<double> weights(seen);
      double sum = 0;
      for (std::size_t s = 0; s < seen; ++s) {
        sum += weights[s] = std::exp(dot(q[t], k[s]) * double{call.scale});
      }
      to.logsumexp.push_back(std::log(sum));
      for (std::size_t s = 0; s < seen; ++s) {
        weights[s] /= sum;
        for (std::size_t c = 0; c < size.width; ++c) {
          to.output[t][c] += weights[s] * kept(first + t, s) * v[s][c];
          to.grad_value[s][c] += weights[s] * kept(first + t, s) * d[t][c];
        }
      }
      const double product = dot(d[t], to.output[t]);
      for (std::size_t s = 0; s < seen; ++s) {
        const double score =
            weights[s] * (dot(d[t], v[s]) * kept(first + t, s) - product) * double{call.scale};
        for (std::size_t c = 0; c < size.width; ++c) {
          to.grad_query[t][c] += score * k[s][c];
          to.grad_key[s][c] += score * q[t][c];
        }
      }
    }
  }

  // Weights, outputs summed by `products`, and results are rounded to 16 bits. An element may be a
  // small difference of large terms, so the largest element bounds its error. An error of that size
  // in all elements would not be rounding: the norm of the error is bounded too.
  void check_matrix(Buffer<std::uint16_t>& got, std::size_t head, const Matrix& expected,
                    const char* what) {
    const double tolerance = type == Half::kBfloat16 ? 1e-2 : 1.25e-3;
    double largest = 1, squares = 1, error_squares = 0;
    for (const std::vector<double>& row : expected) {
      for (const double x : row) {
        largest = std::max(largest, std::abs(x));
        squares += x * x;
      }
    }
    for (std::size_t r = 0; r < expected.size(); ++r) {
      for (std::size_t c = 0; c < size.width; ++c) {
        const std::size_t i = (head * expected.size() + r) * size.width + c;
        const double error = double{emulator::to_float(type, got.data()[i])} - expected[r][c];
        check(std::abs(error) <= tolerance * largest, what, "[", i, "]: off by ", error, " from ",
              expected[r][c], ", the largest is ", largest);
        error_squares += error * error;
      }
    }
    const double error = std::sqrt(error_squares / squares);
    check(error <= tolerance / 2, what, " of head ", head, ": the norm is off by ", error);
  }

  void check_all(bool has_gradients) {
    for (std::uint32_t b = 0; b < size.batches; ++b) {
      Expected expected;
      for (std::uint32_t head = 0; head < size.heads; ++head) {
        if (head % size.sharing == 0) {
          expected.grad_key = expected.grad_value = zeros(size.keys, size.width);
        }
        expect_head(b, head, expected);
        const std::size_t at = std::size_t{b} * size.heads + head;
        check_matrix(output, at, expected.output, "output");
        for (std::size_t t = 0; t < expected.logsumexp.size(); ++t) {
          const std::size_t i = at * expected.logsumexp.size() + t;
          check_close(logsumexp.data()[i], expected.logsumexp[t], 1e-5, "logsumexp", i);
        }
        if (has_gradients) {
          check_matrix(grad_query, at, expected.grad_query, "grad_query");
        }
        if (has_gradients && head % size.sharing == size.sharing - 1) {
          const std::size_t key_head = std::size_t{b} * key_heads() + head / size.sharing;
          check_matrix(grad_key, key_head, expected.grad_key, "grad_key");
          check_matrix(grad_value, key_head, expected.grad_value, "grad_value");
        }
      }
    }
  }

  Half type;
  Size size;
  Operand query, key, value, grad;
  Buffer<std::uint16_t> output, grad_query, grad_key, grad_value;
  Buffer<float> logsumexp, products;
  Buffer<std::int64_t> seeds;
  DeviceAttention call{};
  DeviceAttentionGradient gradient{};
  std::uint64_t bank_conflicts = 0;
};

}  // namespace gt::testing
