// Products of random matrices, next to float64 results, for tests of the kernels.
#pragma once

#include <algorithm>
#include <optional>
#include <random>

#include "cuda/gemm.h"
#include "emulator/machine/instructions.h"
#include "emulator/tests/check.h"

namespace gt::testing {

using emulator::Buffer;
using emulator::FaultKind;
using emulator::Half;
using emulator::launch;
using emulator::Launch;

struct Size {
  std::int64_t rows, columns, depth, batches = 1;
};

// A matrix of random 16-bit values, with rows stored wider than the used part.
struct Operand {
  Operand(const char* name, Half type, std::int64_t batches, std::int64_t rows,
          std::int64_t columns, unsigned seed)
      : type(type), step(columns + 8), batch_step(rows * step) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    std::vector<std::uint16_t> values(static_cast<std::size_t>(batches * batch_step));
    std::generate(values.begin(), values.end(),
                  [&] { return emulator::from_float(type, normal(random)); });
    buffer.emplace(name, values);
  }

  double at(std::int64_t batch, std::int64_t row, std::int64_t column) {
    return double{
        emulator::to_float(type, buffer->data()[batch * batch_step + row * step + column])};
  }
  GemmOperand operand() { return {buffer->data(), step, batch_step}; }

  Half type;
  std::int64_t step, batch_step;
  std::optional<Buffer<std::uint16_t>> buffer;
};

struct Problem {
  Problem(Half type, Size size, bool is_deep_a, bool is_deep_b)
      : type(type),
        size(size),
        is_deep_a(is_deep_a),
        is_deep_b(is_deep_b),
        a("a", type, size.batches, is_deep_a ? size.rows : size.depth,
          is_deep_a ? size.depth : size.rows, 1),
        b("b", type, size.batches, is_deep_b ? size.columns : size.depth,
          is_deep_b ? size.depth : size.columns, 2),
        residual("residual", type, size.batches, size.rows, size.columns, 3),
        bias("bias", type, 1, 1, size.columns, 4),
        half_out("out", count()),
        float_out("out", count()) {
    call.a = a.operand();
    call.b = b.operand();
    call.out = half_out.data();
    call.rows = size.rows;
    call.columns = size.columns;
    call.depth = size.depth;
    call.scale = 1;
  }

  std::size_t count() const {
    return static_cast<std::size_t>(size.batches * size.rows * size.columns);
  }

  Launch grid(std::uint64_t seed) const {
    Launch wanted;
    wanted.grid.x =
        static_cast<unsigned>((size.rows + GemmTile::kRows - 1) / GemmTile::kRows *
                              ((size.columns + GemmTile::kColumns - 1) / GemmTile::kColumns));
    wanted.grid.y = static_cast<unsigned>(size.batches);
    wanted.block.x = GemmTile::kThreads;
    wanted.shared_bytes = GemmTile::kSharedBytes;
    wanted.seed = seed;
    wanted.steps_max = 40'000'000;
    return wanted;
  }

  double activated(double x) const {
    switch (call.activation) {
      case Activation::kNone:
        break;
      case Activation::kRelu:
        return std::max(x, 0.0);
      case Activation::kGelu:
        return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
      case Activation::kSilu:
        return x / (1 + std::exp(-x));
    }
    return x;
  }

  void check_all() {
    // float32 sums of exact products; 16-bit results are rounded once more.
    const double tolerance = call.is_float_out         ? 1e-5
                             : type == Half::kBfloat16 ? 1.0 / 256
                                                       : 1.0 / 2048;
    std::size_t i = 0;
    for (std::int64_t batch = 0; batch < size.batches; ++batch) {
      for (std::int64_t row = 0; row < size.rows; ++row) {
        for (std::int64_t column = 0; column < size.columns; ++column, ++i) {
          double sum = 0;
          for (std::int64_t k = 0; k < size.depth; ++k) {
            sum += (is_deep_a ? a.at(batch, row, k) : a.at(batch, k, row)) *
                   (is_deep_b ? b.at(batch, column, k) : b.at(batch, k, column));
          }
          sum = sum * double{call.scale} + (call.bias != nullptr ? bias.at(0, 0, column) : 0);
          sum = activated(sum) +
                (call.residual.data != nullptr ? residual.at(batch, row, column) : 0);
          const float got = call.is_float_out ? float_out.data()[i]
                                              : emulator::to_float(type, half_out.data()[i]);
          check_close(got, sum, tolerance, "out", i);
        }
      }
    }
  }

  Half type;
  Size size;
  bool is_deep_a, is_deep_b;
  Operand a, b, residual, bias;
  Buffer<std::uint16_t> half_out;
  Buffer<float> float_out;
  GemmCall call{};
};

}  // namespace gt::testing
