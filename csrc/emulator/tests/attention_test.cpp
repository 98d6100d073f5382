// Attention and its gradients against float64: tails, causal or not, heads that share keys, dropped
// weights, on several schedules; then the mistakes planted in them.
#include "emulator/tests/attention_problem.h"

extern "C" {
void planted_stage_too_early_gt_attention_64_bf16(gt::DeviceAttention);
void planted_sees_one_more_gt_attention_64_bf16(gt::DeviceAttention);
void planted_reads_while_copied_gt_attention_grad_key_64_bf16(gt::DeviceAttention,
                                                              gt::DeviceAttentionGradient);
void planted_sees_one_less_gt_attention_grad_key_64_bf16(gt::DeviceAttention,
                                                         gt::DeviceAttentionGradient);
}

namespace gt::testing {
namespace {

struct Kernels {
  void (*forward)(DeviceAttention);
  void (*query)(DeviceAttention, DeviceAttentionGradient);
  void (*key)(DeviceAttention, DeviceAttentionGradient);
};

const Kernels& kernels_of(Half type, bool is_wide) {
  static const Kernels all[] = {
      {gt_attention_64_bf16, gt_attention_grad_query_64_bf16, gt_attention_grad_key_64_bf16},
      {gt_attention_128_bf16, gt_attention_grad_query_128_bf16, gt_attention_grad_key_128_bf16},
      {gt_attention_64_f16, gt_attention_grad_query_64_f16, gt_attention_grad_key_64_f16},
      {gt_attention_128_f16, gt_attention_grad_query_128_f16, gt_attention_grad_key_128_f16},
  };
  return all[(type == Half::kBfloat16 ? 0 : 2) + (is_wide ? 1 : 0)];
}

void check_attention(Half type, Size size, std::uint64_t seed) {
  Problem problem(type, size);
  const Kernels& kernels = kernels_of(type, problem.is_wide());
  problem.forward(kernels.forward, seed);
  problem.multiply(seed);
  problem.backward_query(kernels.query, seed);
  problem.backward_key(kernels.key, seed);
  problem.check_all(true);
  check(problem.bank_conflicts == 0, problem.bank_conflicts, " bank conflicts");
}

// Runs the forward pass, then the gradient of keys and values.
void play(Problem& problem, void (*key)(DeviceAttention, DeviceAttentionGradient),
          std::uint64_t seed) {
  problem.forward(gt_attention_64_bf16, 0);
  problem.multiply(0);
  problem.backward_query(gt_attention_grad_query_64_bf16, 0);
  problem.backward_key(key, seed);
}

bool is_wrong(Problem& problem, bool has_gradients) {
  try {
    problem.check_all(has_gradients);
  } catch (const std::runtime_error&) {
    return true;
  }
  return false;
}

constexpr Size kSmall = {1, 1, 1, 40, 72, 64};
constexpr Size kTriangle = {1, 1, 1, 72, 72, 64, true};

}  // namespace

TEST(attention_with_tails_of_queries_and_keys) {
  check_attention(Half::kBfloat16, {2, 2, 2, 33, 70, 64}, 0);
  check_attention(Half::kFloat16, {1, 1, 1, 70, 41, 128}, 0);
}

TEST(attention_that_sees_the_past_only) {
  // Cases: more queries than a block; more keys than queries, and fewer.
  check_attention(Half::kFloat16, {1, 1, 1, 150, 150, 64, true}, 0);
  check_attention(Half::kBfloat16, {1, 2, 1, 20, 50, 104, true}, 0);
  check_attention(Half::kBfloat16, {1, 1, 1, 70, 20, 24, true}, 0);
}

TEST(attention_drops_what_the_seeds_say) {
  check_attention(Half::kFloat16, {1, 2, 2, 37, 61, 64, false, 0.25}, 0);
  check_attention(Half::kBfloat16, {1, 2, 1, 40, 40, 128, true, 0.5}, 0);
}

TEST(attention_on_other_schedules) {
  for (std::uint64_t seed = 1; seed < 4; ++seed) {
    const double dropout = seed == 3 ? 0.5 : 0;
    for (const Half type : {Half::kBfloat16, Half::kFloat16}) {
      check_attention(type, {1, 2, 2, 36, 50, 64, seed == 2, dropout}, seed);
      check_attention(type, {1, 1, 1, 18, 34, 128, seed == 1}, seed);
    }
  }
}

TEST(attention_bits_do_not_depend_on_the_schedule) {
  std::vector<std::uint16_t> bits[3];
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    Problem problem(Half::kBfloat16, {1, 2, 2, 20, 34, 64, true, 0.25});
    play(problem, gt_attention_grad_key_64_bf16, seed);
    bits[seed] = problem.grad_key.values();
    const std::vector<std::uint16_t> values = problem.grad_value.values();
    bits[seed].insert(bits[seed].end(), values.begin(), values.end());
  }
  check_equal(bits[1], bits[0], "gradients with seed 1");
  check_equal(bits[2], bits[0], "gradients with seed 2");
}

TEST(attention_without_keys_is_zero) {
  Problem problem(Half::kBfloat16, {1, 1, 1, 5, 0, 64});
  problem.forward(gt_attention_64_bf16, 0);
  problem.multiply(0);
  problem.backward_query(gt_attention_grad_query_64_bf16, 0);
  check_equal(problem.output.values(), std::vector<std::uint16_t>(5 * 64), "output");
  check_equal(problem.grad_query.values(), std::vector<std::uint16_t>(5 * 64), "grad_query");
  check(problem.logsumexp.data()[4] == -std::numeric_limits<float>::infinity(), "logsumexp ",
        problem.logsumexp.data()[4]);
}

TEST(planted_missing_barrier_between_stages_is_found) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    Problem problem(Half::kBfloat16, {1, 1, 1, 40, 150, 64});
    const auto fault = fault_of(problem.tiles<AttentionForwardTile<64>>(40, 1, seed), [&] {
      planted_stage_too_early_gt_attention_64_bf16(problem.call);
    });
    check(fault.kind() == FaultKind::kInFlight || fault.kind() == FaultKind::kUninitialized ||
              fault.kind() == FaultKind::kRace,
          fault.what());
  }
}

TEST(planted_late_wait_of_the_gradient_is_found) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    Problem problem(Half::kBfloat16, kSmall);
    problem.forward(gt_attention_64_bf16, 0);
    problem.multiply(0);
    const auto fault =
        fault_of(problem.tiles<AttentionKeyTile<64>>(problem.size.keys, 1, seed), [&] {
          planted_reads_while_copied_gt_attention_grad_key_64_bf16(problem.call, problem.gradient);
        });
    check(fault.kind() == FaultKind::kInFlight || fault.kind() == FaultKind::kUninitialized,
          fault.what());
  }
}

TEST(planted_masks_that_are_off_by_one_are_found) {
  Problem forward(Half::kBfloat16, kTriangle);
  forward.forward(planted_sees_one_more_gt_attention_64_bf16, 0);
  check(is_wrong(forward, false), "a query that sees the next key was not found");
  Problem backward(Half::kBfloat16, kTriangle);
  play(backward, planted_sees_one_less_gt_attention_grad_key_64_bf16, 0);
  check(is_wrong(backward, true), "a key that its own query does not see was not found");
}

}  // namespace gt::testing
