// Products on sm_90a against float64: every layout, type and width of tile, tails, batches, several
// pairs of tiles for a cluster, on several schedules; then the mistakes planted in them.
#include "cuda/gemm_sm90.h"

#include "cuda/worker_kernels.h"
#include "emulator/machine/tensor_map.h"
#include "emulator/tests/gemm_problem.h"

#define GT_PLANTED(mistake)                                                                     \
  void planted_##mistake##_gt_gemm_sm90_128_nt_bf16(gt::TensorMap, gt::TensorMap, gt::GemmCall, \
                                                    std::uint32_t)
extern "C" {
GT_PLANTED(wrong_phase);
GT_PLANTED(wrong_stride);
GT_PLANTED(early_release);
GT_PLANTED(no_init_fence);
GT_PLANTED(no_register_fence);
GT_PLANTED(wrong_bytes);
GT_PLANTED(one_rank);
}
#undef GT_PLANTED

namespace gt::testing {
namespace {

using HopperKernel = void (*)(TensorMap, TensorMap, GemmCall, std::uint32_t);

// Map of an operand with `across` rows (a) or columns (b), made as in cuda/host.
TensorMap map_of(const GemmOperand& operand, bool is_deep, std::int64_t across, const Size& size,
                 std::uint32_t box_across) {
  emulator::TensorFacts facts;
  const std::int64_t inner = is_deep ? size.depth : across;
  const std::int64_t outer = is_deep ? across : size.depth;
  facts.address = reinterpret_cast<std::uintptr_t>(operand.data);
  facts.dims = 3;
  facts.element_bytes = 2;
  facts.swizzle_bytes = 128;
  const std::int64_t sizes[] = {inner, outer, size.batches};
  const std::int64_t strides[] = {1, operand.step, operand.batch_step};
  const std::uint32_t box[] = {64, is_deep ? box_across : 64, 1};
  for (int dim = 0; dim < 3; ++dim) {
    facts.sizes[dim] = static_cast<std::uint64_t>(sizes[dim]);
    facts.strides[dim] = static_cast<std::uint64_t>(strides[dim]) * 2;
    facts.box[dim] = box[dim];
  }
  const std::string refused = emulator::refusal(facts);
  check(refused.empty(), refused);
  return emulator::encode(facts);
}

struct Layout {
  bool is_deep_a, is_deep_b;
};
constexpr Layout kNN{true, false}, kNT{true, true}, kTN{false, false};

// A problem and its launch, in which `clusters` clusters share the pairs of tiles.
struct HopperProblem : Problem {
  HopperProblem(Half type, Size size, Layout layout, unsigned columns, unsigned clusters = 1)
      : Problem(type, size, layout.is_deep_a, layout.is_deep_b), columns(columns) {
    wanted.grid.x = 2 * clusters;
    wanted.cluster.x = 2;
    wanted.block.x = HopperTile<256>::kThreads;
    wanted.shared_bytes =
        columns == 256 ? HopperTile<256>::kSharedBytes : HopperTile<128>::kSharedBytes;
    wanted.steps_max = 4'000'000;
  }

  std::function<void()> run(HopperKernel kernel) {
    const TensorMap a_map = map_of(call.a, is_deep_a, size.rows, size, 128);
    const TensorMap b_map = map_of(call.b, is_deep_b, size.columns, size, columns / 2);
    return [=, this] { kernel(a_map, b_map, call, static_cast<std::uint32_t>(size.batches)); };
  }

  unsigned columns;
  Launch wanted;
};

}  // namespace

TEST(hopper_gemm_of_every_layout_type_and_tile) {
  struct Row {
    HopperKernel kernel;
    Half type;
    Layout layout;
    unsigned columns;
  };
  constexpr Row rows[] = {
      {gt_gemm_sm90_256_nn_bf16, Half::kBfloat16, kNN, 256},
      {gt_gemm_sm90_256_nt_bf16, Half::kBfloat16, kNT, 256},
      {gt_gemm_sm90_256_tn_bf16, Half::kBfloat16, kTN, 256},
      {gt_gemm_sm90_256_nn_f16, Half::kFloat16, kNN, 256},
      {gt_gemm_sm90_256_nt_f16, Half::kFloat16, kNT, 256},
      {gt_gemm_sm90_256_tn_f16, Half::kFloat16, kTN, 256},
      {gt_gemm_sm90_128_nn_bf16, Half::kBfloat16, kNN, 128},
      {gt_gemm_sm90_128_nt_bf16, Half::kBfloat16, kNT, 128},
      {gt_gemm_sm90_128_tn_bf16, Half::kBfloat16, kTN, 128},
      {gt_gemm_sm90_128_nn_f16, Half::kFloat16, kNN, 128},
      {gt_gemm_sm90_128_nt_f16, Half::kFloat16, kNT, 128},
      {gt_gemm_sm90_128_tn_f16, Half::kFloat16, kTN, 128},
  };
  for (const Row& row : rows) {
    for (const std::uint64_t seed : {0, 1}) {
      // Both blocks of the cluster have rows, the second fewer than a tile; the depth has two
      // steps, the last one partial.
      HopperProblem problem(row.type, {136, 40, 104}, row.layout, row.columns);
      problem.wanted.seed = seed;
      const auto statistics = launch(problem.wanted, problem.run(row.kernel));
      problem.check_all();
      check(statistics.bank_conflicts == 0, statistics.bank_conflicts, " bank conflicts");
    }
  }
}

TEST(hopper_gemm_on_other_schedules) {
  for (std::uint64_t seed = 1; seed < 5; ++seed) {
    // More steps than stages: the ring wraps around, also from one pair of tiles to the next.
    HopperProblem problem(Half::kBfloat16, {200, 136, 456}, kNT, 128);
    problem.wanted.seed = seed;
    launch(problem.wanted, problem.run(gt_gemm_sm90_128_nt_bf16));
    problem.check_all();
  }
}

TEST(hopper_gemm_with_what_follows) {
  const Activation all[] = {Activation::kNone, Activation::kRelu, Activation::kGelu,
                            Activation::kSilu};
  for (const Activation activation : all) {
    const bool is_even = activation == Activation::kNone || activation == Activation::kGelu;
    HopperProblem problem(Half::kFloat16, {40, 24, 8}, kTN, 128);
    problem.call.activation = activation;
    problem.call.scale = 0.5F;
    problem.call.bias = problem.bias.buffer->data();
    if (is_even) {
      problem.call.residual = problem.residual.operand();
      problem.call.is_float_out = true;
      problem.call.out = problem.float_out.data();
    }
    launch(problem.wanted, problem.run(gt_gemm_sm90_128_tn_f16));
    problem.check_all();
  }
}

TEST(hopper_gemm_of_batches_and_of_groups_of_tiles) {
  HopperProblem batches(Half::kBfloat16, {16, 264, 72, 3}, kNN, 256, 2);
  batches.call.residual = batches.residual.operand();
  launch(batches.wanted, batches.run(gt_gemm_sm90_256_nn_bf16));
  batches.check_all();
  // Nine pairs of tiles below each other, in a group of eight and one of one, each two tiles wide;
  // more clusters than can be resident at once.
  HopperProblem tall(Half::kBfloat16, {8 * 256 + 8, 136, 8}, kTN, 128, 3);
  launch(tall.wanted, tall.run(gt_gemm_sm90_128_tn_bf16));
  tall.check_all();
}

TEST(mistakes_planted_in_hopper_gemm_are_found) {
  struct Row {
    HopperKernel kernel;
    const char* name;
    std::vector<FaultKind> kinds;
  };
  const Row rows[] = {
      {planted_wrong_phase_gt_gemm_sm90_128_nt_bf16, "wrong_phase", {FaultKind::kDeadlock}},
      {planted_wrong_stride_gt_gemm_sm90_128_nt_bf16, "wrong_stride", {}},
      {planted_early_release_gt_gemm_sm90_128_nt_bf16, "early_release", {FaultKind::kRace}},
      {planted_no_init_fence_gt_gemm_sm90_128_nt_bf16, "no_init_fence", {FaultKind::kRace}},
      {planted_no_register_fence_gt_gemm_sm90_128_nt_bf16, "no_register_fence", {FaultKind::kRace}},
      {planted_wrong_bytes_gt_gemm_sm90_128_nt_bf16,
       "wrong_bytes",
       {FaultKind::kDeadlock, FaultKind::kInFlight, FaultKind::kRace}},
      {planted_one_rank_gt_gemm_sm90_128_nt_bf16, "one_rank", {FaultKind::kDeadlock}},
  };
  for (const Row& row : rows) {
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      HopperProblem problem(Half::kBfloat16, {24, 16, 456}, kNT, 128);
      problem.wanted.seed = seed;
      std::string found;
      try {
        launch(problem.wanted, problem.run(row.kernel));
        problem.check_all();
      } catch (const emulator::Fault& fault) {
        found = fault.what();
        check(std::count(row.kinds.begin(), row.kinds.end(), fault.kind()) == 1, row.name, ": ",
              found);
      } catch (const std::exception& wrong_value) {
        found = wrong_value.what();
        check(row.kinds.empty(), row.name, ": ", found);
      }
      check(!found.empty(), row.name, " was not found with seed ", seed);
    }
  }
}

}  // namespace gt::testing
