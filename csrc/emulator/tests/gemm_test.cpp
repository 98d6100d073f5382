// Matrix products against float64: layouts, tails, batches, epilogues, on several schedules; then
// the mistakes planted in them.
#include <memory>

#include "cuda/worker_kernels.h"
#include "emulator/tests/gemm_problem.h"

extern "C" {
void planted_wrong_swizzle_gt_gemm_nt_bf16(gt::GemmCall);
void planted_late_copy_gt_gemm_nt_bf16(gt::GemmCall);
void planted_wrong_row_gt_gemm_nt_bf16(gt::GemmCall);
}

namespace gt::testing {
namespace {

using Kernel = void (*)(GemmCall);

}  // namespace

TEST(gemm_of_every_layout_and_type) {
  struct Row {
    Kernel kernel;
    Half type;
    bool is_deep_a, is_deep_b;
  };
  constexpr Row rows[] = {
      {gt_gemm_nn_bf16, Half::kBfloat16, true, false},
      {gt_gemm_nt_bf16, Half::kBfloat16, true, true},
      {gt_gemm_tn_bf16, Half::kBfloat16, false, false},
      {gt_gemm_nn_f16, Half::kFloat16, true, false},
      {gt_gemm_nt_f16, Half::kFloat16, true, true},
      {gt_gemm_tn_f16, Half::kFloat16, false, false},
  };
  for (const Row& row : rows) {
    for (const std::uint64_t seed : {0, 1}) {
      // Each size is above or below a tile's; the depth has more steps than there are stages.
      Problem problem(row.type, {40, 136, 136}, row.is_deep_a, row.is_deep_b);
      const auto statistics = launch(problem.grid(seed), [&] { row.kernel(problem.call); });
      problem.check_all();
      check(statistics.bank_conflicts == 0, statistics.bank_conflicts, " bank conflicts");
    }
  }
}

TEST(gemm_on_other_schedules) {
  for (std::uint64_t seed = 1; seed < 4; ++seed) {
    Problem problem(Half::kBfloat16, {24, 16, 104}, true, true);
    launch(problem.grid(seed), [&] { gt_gemm_nt_bf16(problem.call); });
    problem.check_all();
  }
}

TEST(gemm_with_what_follows) {
  const Activation all[] = {Activation::kNone, Activation::kRelu, Activation::kGelu,
                            Activation::kSilu};
  for (const Activation activation : all) {
    const bool is_even = activation == Activation::kNone || activation == Activation::kGelu;
    Problem problem(Half::kFloat16, {8, 24, 8}, true, true);
    problem.call.activation = activation;
    problem.call.scale = 0.5F;
    problem.call.bias = problem.bias.buffer->data();
    if (is_even) {
      problem.call.residual = problem.residual.operand();
      problem.call.is_float_out = true;
      problem.call.out = problem.float_out.data();
    }
    launch(problem.grid(0), [&] { gt_gemm_nt_f16(problem.call); });
    problem.check_all();
  }
}

TEST(gemm_of_batches_and_of_groups_of_tiles) {
  Problem batches(Half::kBfloat16, {8, 8, 8, 3}, true, false);
  batches.call.residual = batches.residual.operand();
  launch(batches.grid(0), [&] { gt_gemm_nn_bf16(batches.call); });
  batches.check_all();
  // Nine rows of tiles, in a group of eight and one of one, each two tiles wide.
  Problem tall(Half::kBfloat16, {8 * 128 + 8, 136, 8}, false, false);
  launch(tall.grid(0), [&] { gt_gemm_tn_bf16(tall.call); });
  tall.check_all();
}

TEST(skinny_products) {
  for (const std::int64_t rows : {1, 5, 8}) {
    for (const bool is_bfloat16 : {false, true}) {
      for (const std::uint64_t seed : {0, 3}) {
        const Half type = is_bfloat16 ? Half::kBfloat16 : Half::kFloat16;
        Problem problem(type, {rows, 22, 264, 2}, true, true);
        problem.call.activation = Activation::kSilu;
        problem.call.bias = problem.bias.buffer->data();
        problem.call.residual = problem.residual.operand();
        Launch wanted = problem.grid(seed);
        wanted.grid.x = 1;
        wanted.block.x = SkinnyTile::kThreads;
        launch(wanted, [&] {
          is_bfloat16 ? gt_skinny_nt_bf16(problem.call) : gt_skinny_nt_f16(problem.call);
        });
        problem.check_all();
      }
    }
  }
}

TEST(grouped_products_in_one_launch) {
  struct Row {
    void (*kernel)(const GemmGroup*, std::uint32_t);
    Half type;
    bool is_deep_a, is_deep_b;
  };
  constexpr Row rows[] = {
      {gt_grouped_gemm_nn_bf16, Half::kBfloat16, true, false},
      {gt_grouped_gemm_nt_bf16, Half::kBfloat16, true, true},
      {gt_grouped_gemm_tn_bf16, Half::kBfloat16, false, false},
      {gt_grouped_gemm_nn_f16, Half::kFloat16, true, false},
      {gt_grouped_gemm_nt_f16, Half::kFloat16, true, true},
      {gt_grouped_gemm_tn_f16, Half::kFloat16, false, false},
  };
  for (const Row& row : rows) {
    for (const std::uint64_t seed : {0, 2}) {
      std::vector<std::unique_ptr<Problem>> problems;
      std::vector<GemmGroup> groups;
      unsigned tiles = 0;
      for (const Size size : {Size{8, 8, 40}, Size{16, 136, 8}, Size{136, 8, 8}}) {
        problems.push_back(std::make_unique<Problem>(row.type, size, row.is_deep_a, row.is_deep_b));
        groups.push_back({problems.back()->call, tiles});
        tiles += problems.back()->grid(0).grid.x;
      }
      Buffer<GemmGroup> table("groups", groups);
      Launch wanted = problems[0]->grid(seed);
      wanted.grid.x = tiles;
      launch(wanted, [&] { row.kernel(table.data(), static_cast<std::uint32_t>(groups.size())); });
      for (const auto& problem : problems) {
        problem->check_all();
      }
    }
  }
}

TEST(planted_wrong_swizzle_meets_banks_twice) {
  Problem problem(Half::kBfloat16, {16, 16, 64}, true, true);
  const auto statistics =
      launch(problem.grid(0), [&] { planted_wrong_swizzle_gt_gemm_nt_bf16(problem.call); });
  check(statistics.bank_conflicts > 0, "the planted swizzle has no bank conflicts");
}

TEST(planted_late_copy_is_found) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    Problem problem(Half::kBfloat16, {16, 16, 136}, true, true);
    const auto fault =
        fault_of(problem.grid(seed), [&] { planted_late_copy_gt_gemm_nt_bf16(problem.call); });
    check(fault.kind() == FaultKind::kInFlight || fault.kind() == FaultKind::kUninitialized ||
              fault.kind() == FaultKind::kRace,
          fault.what());
  }
}

TEST(planted_row_of_the_result_is_found) {
  // The mistake shifts rows 8 to 15 by one: with 24 rows, row 16 is written twice.
  Problem twice(Half::kBfloat16, {24, 16, 8}, true, true);
  check_fault(fault_of(twice.grid(0), [&] { planted_wrong_row_gt_gemm_nt_bf16(twice.call); }),
              FaultKind::kRace,
              "4 bytes at out + 512 of 768");  // 16 rows of 16 elements of 2 bytes
  // With 16 rows, row 8 is never written.
  Problem never(Half::kBfloat16, {16, 16, 8}, true, true);
  launch(never.grid(0), [&] { planted_wrong_row_gt_gemm_nt_bf16(never.call); });
  std::string found;
  try {
    never.check_all();
  } catch (const std::runtime_error& error) {
    found = error.what();
  }
  check(found.starts_with("out[128]: "), "expected a wrong value in row 8, got '", found, "'");
}

}  // namespace gt::testing
