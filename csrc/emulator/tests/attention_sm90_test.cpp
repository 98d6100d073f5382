// Attention and its gradients on sm_90a against float64: every type and width of tile, tails,
// causal or not, heads that share keys, several tiles for a block, on several schedules.
#include "cuda/attention_sm90.h"

#include "emulator/machine/tensor_map.h"
#include "emulator/tests/attention_problem.h"

namespace gt::testing {
namespace {

// Map of an operand with `rows` rows a head, made as in cuda/host.
TensorMap map_of(const AttentionRows& operand, const Size& size, std::int32_t rows,
                 std::uint32_t heads, std::uint32_t box_rows) {
  emulator::TensorFacts facts;
  facts.address = reinterpret_cast<std::uintptr_t>(operand.data);
  facts.dims = 4;
  facts.element_bytes = 2;
  facts.swizzle_bytes = 128;
  const std::int64_t sizes[] = {size.width, rows, heads, size.batches};
  const std::int64_t strides[] = {1, operand.row, operand.head, operand.batch};
  const std::uint32_t box[] = {64, box_rows, 1, 1};
  for (int dim = 0; dim < 4; ++dim) {
    facts.sizes[dim] = static_cast<std::uint64_t>(sizes[dim]);
    facts.strides[dim] = static_cast<std::uint64_t>(strides[dim]) * 2;
    facts.box[dim] = box[dim];
  }
  const std::string refused = emulator::refusal(facts);
  check(refused.empty(), refused);
  return emulator::encode(facts);
}

using Forward = void (*)(TensorMap, TensorMap, TensorMap, DeviceAttention, std::uint32_t);

Forward kernel_of(Half type, bool is_wide) {
  if (type == Half::kBfloat16) {
    return is_wide ? gt_attention_sm90_128_bf16 : gt_attention_sm90_64_bf16;
  }
  return is_wide ? gt_attention_sm90_128_f16 : gt_attention_sm90_64_f16;
}

using Backward = void (*)(TensorMap, TensorMap, TensorMap, TensorMap, DeviceAttention,
                          DeviceAttentionGradient, std::uint32_t);
struct Gradients {
  Backward query, key;
};

Gradients gradients_of(Half type, bool is_wide) {
  if (type == Half::kBfloat16) {
    return is_wide ? Gradients{gt_attention_grad_query_sm90_128_bf16,
                               gt_attention_grad_key_sm90_128_bf16}
                   : Gradients{gt_attention_grad_query_sm90_64_bf16,
                               gt_attention_grad_key_sm90_64_bf16};
  }
  return is_wide
             ? Gradients{gt_attention_grad_query_sm90_128_f16, gt_attention_grad_key_sm90_128_f16}
             : Gradients{gt_attention_grad_query_sm90_64_f16, gt_attention_grad_key_sm90_64_f16};
}

template <class Tile>
Launch launch_of(unsigned blocks, std::uint64_t seed) {
  Launch wanted;
  wanted.grid.x = blocks;
  wanted.block.x = Tile::kThreads;
  wanted.shared_bytes = Tile::kSharedBytes;
  wanted.seed = seed;
  wanted.steps_max = 40'000'000;
  return wanted;
}

template <class Tile>
void play(Problem& problem, Backward kernel, std::uint32_t query_rows, std::uint32_t key_rows,
          unsigned blocks, std::uint64_t seed) {
  const DeviceAttention& call = problem.call;
  const Size& size = problem.size;
  const TensorMap query = map_of(call.query, size, size.queries, size.heads, query_rows);
  const TensorMap grad = map_of(problem.gradient.grad, size, size.queries, size.heads, query_rows);
  const TensorMap key = map_of(call.key, size, size.keys, problem.key_heads(), key_rows);
  const TensorMap value = map_of(call.value, size, size.keys, problem.key_heads(), key_rows);
  launch(launch_of<Tile>(blocks, seed),
         [&] { kernel(query, grad, key, value, call, problem.gradient, size.batches); });
}

template <unsigned kWidth>
void play(Problem& problem, const Gradients& kernels, unsigned blocks, std::uint64_t seed) {
  using QueryTile = AttentionHopperQueryTile<kWidth>;
  using KeyTile = AttentionHopperKeyTile<kWidth>;
  play<QueryTile>(problem, kernels.query, QueryTile::kRows, QueryTile::kColumns, blocks, seed);
  play<KeyTile>(problem, kernels.key, KeyTile::kColumns, KeyTile::kRows, blocks, seed);
}

void check_attention(Half type, Size size, unsigned blocks, std::uint64_t seed) {
  using Tile = AttentionHopperTile<64>;
  Problem problem(type, size);
  const DeviceAttention& call = problem.call;
  const Launch wanted = problem.is_wide() ? launch_of<AttentionHopperTile<128>>(blocks, seed)
                                          : launch_of<Tile>(blocks, seed);
  const TensorMap query = map_of(call.query, size, size.queries, size.heads, Tile::kRows);
  const TensorMap key = map_of(call.key, size, size.keys, problem.key_heads(), Tile::kColumns);
  const TensorMap value = map_of(call.value, size, size.keys, problem.key_heads(), Tile::kColumns);
  const Forward kernel = kernel_of(type, problem.is_wide());
  const auto statistics = launch(wanted, [&] { kernel(query, key, value, call, size.batches); });
  problem.multiply(seed);
  const Gradients gradients = gradients_of(type, problem.is_wide());
  if (problem.is_wide()) {
    play<128>(problem, gradients, blocks, seed);
  } else {
    play<64>(problem, gradients, blocks, seed);
  }
  problem.check_all(true);
  // Holds for head sizes that fill their boxes; for others, not all lanes of a row write.
  check(statistics.bank_conflicts == 0 || size.width % 64 != 0, statistics.bank_conflicts,
        " bank conflicts");
}

}  // namespace

TEST(hopper_attention_of_every_type_and_tile) {
  for (const Half type : {Half::kBfloat16, Half::kFloat16}) {
    for (const std::uint64_t seed : {0, 1}) {
      check_attention(type, {2, 2, 2, 33, 70, 64}, 1, seed);
      check_attention(type, {1, 2, 1, 20, 150, 128}, 2, seed);
    }
  }
}

TEST(hopper_attention_that_sees_the_past_only) {
  // Cases: more queries than a tile; more keys than queries, and fewer; head sizes below a tile's.
  check_attention(Half::kFloat16, {1, 1, 1, 300, 300, 64, true}, 1, 0);
  check_attention(Half::kBfloat16, {1, 2, 1, 150, 260, 104, true}, 2, 0);
  check_attention(Half::kBfloat16, {1, 1, 1, 140, 20, 24, true}, 1, 0);
}

TEST(hopper_attention_on_other_schedules) {
  for (std::uint64_t seed = 1; seed < 4; ++seed) {
    // More panels than stages: the ring wraps around, also from tile to tile.
    check_attention(Half::kBfloat16, {1, 2, 2, 260, 400, 64, seed == 2}, 1, seed);
  }
}

}  // namespace gt::testing
