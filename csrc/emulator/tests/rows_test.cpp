// Row kernels and AdamW against float64, on several schedules; then the mistakes planted in them.
#include <algorithm>
#include <memory>
#include <random>

#include "cuda/kernels.h"
#include "emulator/tests/check.h"

extern "C" {
void planted_no_barrier_gt_rms_norm_f32(gt::NormCall);
void planted_race_gt_layer_norm_f32(gt::NormCall);
void planted_off_by_one_gt_rms_norm_f32(gt::NormCall);
void planted_lost_row_gt_layer_norm_backward_f32(gt::NormGradientCall);
}

namespace gt::testing {
namespace {

using emulator::Buffer;
using emulator::FaultKind;
using emulator::launch;
using emulator::Launch;

constexpr std::size_t kRows = 3;
constexpr float kEps = 1e-5F;

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.5F, 2);
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  return values;
}

Launch rows(std::uint64_t seed, unsigned threads = 64) {
  Launch wanted;
  wanted.grid.x = kRows;
  wanted.block.x = threads;
  wanted.seed = seed;
  return wanted;
}

struct Rows {
  explicit Rows(std::size_t wide)
      : columns(wide),
        x_values(random_values(kRows * wide, 1)),
        residual_values(random_values(kRows * wide, 2)),
        weight_values(random_values(wide, 3)),
        bias_values(random_values(wide, 4)) {}

  NormCall call() {
    return {x.data(),    residual.data(), weight.data(),
            bias.data(), total.data(),    out.data(),
            mean.data(), rstd.data(),     static_cast<std::int64_t>(columns),
            kEps};
  }
  double total_at(std::size_t i) const { return double{x_values[i]} + double{residual_values[i]}; }

  std::size_t columns;
  std::vector<float> x_values, residual_values, weight_values, bias_values;
  Buffer<float> x{"x", x_values};
  Buffer<float> residual{"residual", residual_values};
  Buffer<float> weight{"weight", weight_values};
  Buffer<float> bias{"bias", bias_values};
  Buffer<float> total{"total", x_values.size()};
  Buffer<float> out{"out", x_values.size()};
  Buffer<float> mean{"mean", kRows};
  Buffer<float> rstd{"rstd", kRows};
};

void check_norm(const Rows& rows, bool is_centered) {
  for (std::size_t row = 0; row < kRows; ++row) {
    const std::size_t begin = row * rows.columns;
    double mean = 0;
    for (std::size_t i = begin; is_centered && i < begin + rows.columns; ++i) {
      mean += rows.total_at(i) / static_cast<double>(rows.columns);
    }
    double square = 0;
    for (std::size_t i = begin; i < begin + rows.columns; ++i) {
      square += std::pow(rows.total_at(i) - mean, 2) / static_cast<double>(rows.columns);
    }
    check_close(rows.mean.values()[row], mean, 1e-5, "mean", row);
    check_close(rows.rstd.values()[row], 1 / std::sqrt(square + kEps), 1e-5, "rstd", row);
    for (std::size_t column = 0; column < rows.columns; ++column) {
      const double normal = (rows.total_at(begin + column) - mean) / std::sqrt(square + kEps);
      const double expected = normal * double{rows.weight_values[column]} +
                              (is_centered ? double{rows.bias_values[column]} : 0.0);
      check_close(rows.out.values()[begin + column], expected, 1e-5, "out", begin + column);
      check_close(rows.total.values()[begin + column], rows.total_at(begin + column), 1e-6, "total",
                  begin + column);
    }
  }
}

}  // namespace

TEST(rms_norm_is_right) {
  for (const std::size_t columns : {1, 33, 150}) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      Rows data(columns);
      launch(rows(seed), [&] { gt_rms_norm_f32(data.call()); });
      check_norm(data, false);
    }
  }
}

TEST(layer_norm_is_right) {
  for (const std::size_t columns : {7, 64, 150}) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      Rows data(columns);
      launch(rows(seed, 96), [&] { gt_layer_norm_f32(data.call()); });
      check_norm(data, true);
    }
  }
}

// Three rows on two blocks; the values are those of tests/cuda/cuda_cases.py.
struct NormGradients {
  explicit NormGradients(std::size_t columns)
      : data(columns), sums("sums", 2 * columns), bias_sums("bias_sums", 2 * columns) {
    call = {data.x.data(),
            nullptr,
            nullptr,
            data.weight.data(),
            data.residual.data(),
            nullptr,
            data.out.data(),
            sums.data(),
            bias_sums.data(),
            kRows,
            static_cast<std::int64_t>(columns),
            kEps};
  }
  Launch two_blocks(std::uint64_t seed) const {
    Launch wanted = rows(seed);
    wanted.grid.x = 2;
    return wanted;
  }
  std::vector<float> results() const {
    std::vector<float> all = data.out.values();
    for (const auto* buffer : {&sums, &bias_sums}) {
      const std::vector<float> values = buffer->values();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  Rows data;
  Buffer<float> sums, bias_sums;
  NormGradientCall call{};
};

TEST(norm_backward_has_the_same_bits_on_all_schedules) {
  for (const std::size_t columns : {5, 70}) {
    NormGradients first(columns);
    launch(first.two_blocks(0), [&] { gt_layer_norm_backward_f32(first.call); });
    for (std::uint64_t seed = 1; seed < 4; ++seed) {
      NormGradients other(columns);
      launch(other.two_blocks(seed), [&] { gt_layer_norm_backward_f32(other.call); });
      check_equal(other.results(), first.results(), "gradients");
    }
  }
}

TEST(planted_sums_that_lose_a_row_are_found) {
  NormGradients right(33), wrong(33);
  launch(right.two_blocks(0), [&] { gt_layer_norm_backward_f32(right.call); });
  launch(wrong.two_blocks(0), [&] { planted_lost_row_gt_layer_norm_backward_f32(wrong.call); });
  check(right.results() != wrong.results(), "sums that lose a row were not found");
}

TEST(cross_entropy_is_right) {
  for (const std::size_t columns : {2, 65, 130}) {
    const std::vector<float> logits = random_values(kRows * columns, 5);
    const std::vector<std::int64_t> targets = {0, static_cast<std::int64_t>(columns) - 1, 1};
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      Buffer<float> x("logits", logits);
      Buffer<std::int64_t> target("targets", targets);
      Buffer<float> loss("loss", kRows);
      Buffer<float> gradient("gradient", logits.size());
      Buffer<float> log_probs("log_probs", logits.size());
      Buffer<float> grads("grads", {2.0F, 0.5F, -1.0F});
      Buffer<float> whole("whole", std::vector<float>{4.0F});
      Buffer<float> again("again", logits.size());
      const auto count = static_cast<std::int64_t>(columns);
      launch(rows(seed), [&] {
        gt_cross_entropy_f32({x.data(), target.data(), loss.data(), gradient.data(),
                              log_probs.data(), count, -100, 0.5F});
      });
      launch(rows(seed), [&] {
        gt_cross_entropy_backward_f32({log_probs.data(), target.data(), grads.data(), whole.data(),
                                       again.data(), count, 1, 1});
      });
      for (std::size_t row = 0; row < kRows; ++row) {
        double sum = 0;
        for (std::size_t i = 0; i < columns; ++i) {
          sum += std::exp(double{logits[row * columns + i]});
        }
        const auto label = static_cast<std::size_t>(targets[row]);
        check_close(loss.values()[row], std::log(sum) - double{logits[row * columns + label]}, 1e-5,
                    "loss", row);
        for (std::size_t i = 0; i < columns; ++i) {
          const double softmax = std::exp(double{logits[row * columns + i]}) / sum;
          const double slope = targets[row] == 1 ? 0 : softmax - (i == label ? 1 : 0);
          check_close(log_probs.values()[row * columns + i], std::log(softmax), 1e-5, "log_probs",
                      row * columns + i);
          check_close(again.values()[row * columns + i], slope * grads.values()[row] / 4, 1e-5,
                      "gradient from log_probs", row * columns + i);
          check_close(gradient.values()[row * columns + i], (softmax - (i == label ? 1 : 0)) / 2,
                      1e-5, "gradient", row * columns + i);
        }
      }
    }
  }
}

TEST(a_target_that_is_no_column_is_found) {
  const std::vector<float> logits = random_values(kRows * 5, 5);
  for (const std::int64_t wrong : {-1, 5}) {
    Buffer<float> x("logits", logits);
    Buffer<std::int64_t> target("targets", {0, wrong, 1});
    Buffer<float> loss("loss", kRows);
    check_fault(fault_of(rows(0),
                         [&] {
                           gt_cross_entropy_f32({x.data(), target.data(), loss.data(), nullptr,
                                                 nullptr, 5, -100, 1.0F});
                         }),
                FaultKind::kMisuse, "a target is no column");
  }
}

void check_adamw(std::uint64_t seed) {
  const AdamwStep step{0.01F, 0.9F, 0.999F, 1e-8F, 0.1F, 1 - 0.9F * 0.9F, 1 - 0.999F * 0.999F};
  const std::vector<std::size_t> sizes = {1, 70, 32, 100};
  std::vector<std::unique_ptr<Buffer<float>>> buffers;
  std::vector<AdamwTensor> table;
  std::uint32_t blocks = 0;
  for (const std::size_t size : sizes) {
    std::vector<float> square = random_values(size, 4);
    std::for_each(square.begin(), square.end(), [](float& value) { value *= value; });
    const std::vector<float> starts[] = {random_values(size, 1), random_values(size, 2),
                                         random_values(size, 3), square};
    float* data[4] = {};
    for (std::size_t i = 0; i < 4; ++i) {
      buffers.push_back(std::make_unique<Buffer<float>>("state", starts[i]));
      data[i] = buffers.back()->data();
    }
    table.push_back({data[0], data[1], data[2], data[3], static_cast<std::int64_t>(size), blocks});
    blocks += static_cast<std::uint32_t>((size + 31) / 32);
  }
  std::vector<std::vector<float>> before;
  for (const auto& buffer : buffers) {
    before.push_back(buffer->values());
  }
  Buffer<AdamwTensor> tensors("tensors", table);
  Launch wanted = rows(seed, 32);
  wanted.grid.x = blocks;
  launch(wanted, [&] { gt_adamw_f32(tensors.data(), 4, step); });
  for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
    const auto* start = &before[4 * tensor];
    for (std::size_t i = 0; i < sizes[tensor]; ++i) {
      const double gradient = start[1][i];
      const double mean = 0.9 * double{start[2][i]} + 0.1 * gradient;
      const double square = 0.999 * double{start[3][i]} + 0.001 * gradient * gradient;
      const double expected =
          double{start[0][i]} * (1 - 0.01 * 0.1) -
          0.01 / (1 - 0.81) * mean / (std::sqrt(square / (1 - 0.998001)) + 1e-8);
      check_close(buffers[4 * tensor]->data()[i], expected, 1e-4, "parameter", i);
      check_close(buffers[4 * tensor + 2]->data()[i], mean, 1e-5, "mean", i);
      check_close(buffers[4 * tensor + 3]->data()[i], square, 1e-5, "square", i);
    }
  }
}

TEST(adamw_updates_a_group_in_one_launch) {
  for (const std::uint64_t seed : {0, 3, 4}) {
    check_adamw(seed);
  }
}

TEST(planted_missing_barrier_is_found) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Rows data(100);
    const auto fault =
        fault_of(rows(seed), [&] { planted_no_barrier_gt_rms_norm_f32(data.call()); });
    check(fault.kind() == FaultKind::kUninitialized || fault.kind() == FaultKind::kRace,
          fault.what());
  }
}

TEST(planted_race_is_found) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Rows data(100);
    check_fault(fault_of(rows(seed), [&] { planted_race_gt_layer_norm_f32(data.call()); }),
                FaultKind::kRace, "shared memory of block");
  }
}

TEST(planted_row_off_by_one_is_found) {
  Rows data(64);
  check_fault(fault_of(rows(0), [&] { planted_off_by_one_gt_rms_norm_f32(data.call()); }),
              FaultKind::kOutOfBounds, "behind x (768 bytes)");
}

}  // namespace gt::testing
