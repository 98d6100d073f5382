#include "cuda/host/attention_calls.h"

#include <initializer_list>
#include <stdexcept>

#include "algo/random_parameters.h"
#include "cuda/host/grids.h"
#include "cuda/host/hopper_attention.h"

namespace gt::cuda {
namespace {

constexpr std::int64_t kCountMax = 1 << 30;  // positions are of 32 bits, with a sign
constexpr std::int64_t kExtentMax = 65535;   // gridDim.y and gridDim.z
constexpr std::int64_t kWidthMax = 128;
constexpr std::int64_t kNarrowWidthMax = 64;
constexpr std::int64_t kCopied = 8;  // elements in 16 bytes

void check_sizes(const AttentionSizes& sizes) {
  const auto& [batches, heads, key_heads, queries, keys, width] = sizes;
  const bool is_taken = batches >= 0 && batches <= kExtentMax && heads > 0 && heads <= kExtentMax &&
                        key_heads > 0 && heads % key_heads == 0 && queries >= 0 &&
                        queries <= kCountMax && keys >= 0 && keys <= kCountMax && width > 0 &&
                        width <= kWidthMax && width % kCopied == 0;
  if (!is_taken) {
    throw std::invalid_argument(message(
        "attention: ", batches, " batches of ", heads, " heads that share the keys of ", key_heads,
        ", ", queries, " queries, ", keys, " keys, head size ", width,
        "; a head size is a multiple of ", kCopied, " up to ", kWidthMax,
        ", heads are a multiple of those of keys, and batches and heads up to ", kExtentMax));
  }
}

void check_operand(const char* name, const AttentionOperand& operand) {
  if (operand.address % 16 != 0 || operand.row % kCopied != 0 || operand.head % kCopied != 0 ||
      operand.batch % kCopied != 0) {
    throw std::invalid_argument(message(
        "attention: ", name, " begins at address ", operand.address, " and has ", operand.row, ", ",
        operand.head, " and ", operand.batch,
        " elements from row to row, head to head and batch to batch; copies take 16 bytes, ",
        kCopied, " elements"));
  }
}

AttentionRows rows_of(const char* name, const AttentionOperand& operand) {
  check_operand(name, operand);
  return {at<const std::uint16_t>(operand.address), operand.row, operand.head, operand.batch};
}

DeviceAttention call_of(const AttentionLaunch& given) {
  const AttentionSizes& sizes = given.sizes;
  check_sizes(sizes);
  DeviceAttention call{};
  call.query = rows_of("query", given.query);
  call.key = rows_of("key", given.key);
  call.value = rows_of("value", given.value);
  if (given.seeds != 0) {
    if (!(given.dropout_p > 0 && given.dropout_p < 1)) {
      throw std::invalid_argument(
          message("attention: dropout_p ", given.dropout_p, " is not in (0, 1)"));
    }
    call.seeds = at<const std::int64_t>(given.seeds);
    call.dropped_last =
        static_cast<std::uint32_t>(checked_threshold("attention", given.dropout_p) - 1);
    call.kept_factor = static_cast<float>(1 / (1 - given.dropout_p));
  }
  call.heads = static_cast<std::uint32_t>(sizes.heads);
  call.sharing = static_cast<std::uint32_t>(sizes.heads / sizes.key_heads);
  call.width = static_cast<std::uint32_t>(sizes.width);
  call.is_causal = given.is_causal;
  call.queries = static_cast<std::int32_t>(sizes.queries);
  call.keys = static_cast<std::int32_t>(sizes.keys);
  call.scale = given.scale;
  call.output = at<std::uint16_t>(given.output);
  call.logsumexp = at<float>(given.logsumexp);
  return call;
}

// Chooses by type and width of tiles: bfloat16 narrow and wide, then float16.
template <class Signature>
Kernel<Signature> chosen(const Kernel<Signature> (&kernels)[4], const AttentionLaunch& given) {
  if (given.element != Element::kBfloat16 && given.element != Element::kFloat16) {
    throw DtypeError(message("attention: no CUDA kernel takes ", element_name(given.element)));
  }
  const bool is_wide = given.sizes.width > kNarrowWidthMax;
  return kernels[(given.element == Element::kBfloat16 ? 0 : 2) + (is_wide ? 1 : 0)];
}

template <class Tile>
Grid tile_grid(std::int64_t rows, std::int64_t heads, std::int64_t batches) {
  Grid grid;
  grid.blocks[0] = static_cast<unsigned>((rows + Tile::kRows - 1) / Tile::kRows);
  grid.blocks[1] = static_cast<unsigned>(heads);
  grid.blocks[2] = static_cast<unsigned>(batches);
  grid.threads[0] = Tile::kThreads;
  return grid;
}

template <template <unsigned> class Tile>
Grid shared_grid(std::int64_t rows, std::int64_t heads, const AttentionSizes& sizes) {
  const bool is_wide = sizes.width > kNarrowWidthMax;
  Grid grid = is_wide ? tile_grid<Tile<128>>(rows, heads, sizes.batches)
                      : tile_grid<Tile<64>>(rows, heads, sizes.batches);
  grid.shared_bytes = is_wide ? Tile<128>::kSharedBytes : Tile<64>::kSharedBytes;
  return grid;
}

}  // namespace

void attention(Launcher& launcher, const AttentionLaunch& given) {
  constexpr Kernel<void(DeviceAttention)> kKernels[4] = {
      GT_KERNEL("attention", gt_attention_64_bf16), GT_KERNEL("attention", gt_attention_128_bf16),
      GT_KERNEL("attention", gt_attention_64_f16), GT_KERNEL("attention", gt_attention_128_f16)};
  const auto kernel = chosen(kKernels, given);
  const DeviceAttention call = call_of(given);
  const AttentionSizes& sizes = given.sizes;
  if (sizes.batches == 0 || sizes.queries == 0) {
    return;
  }
  const Queue queue{
      launcher.device_of("attention", {given.query.address, given.key.address, given.value.address,
                                       given.seeds, given.output, given.logsumexp}),
      given.queue_stream};
  if (is_for_hopper(launcher.facts(queue.device), given)) {
    return hopper_attention(launcher, given, call, queue);
  }
  launcher.launch(kernel, shared_grid<AttentionForwardTile>(sizes.queries, sizes.heads, sizes),
                  queue, call);
}

void attention_backward(Launcher& launcher, const AttentionLaunch& given,
                        const AttentionGradientLaunch& made) {
  using Gradient = void(DeviceAttention, DeviceAttentionGradient);
  constexpr const char* kSource = "attention_backward";
  constexpr Kernel<Gradient> kProducts[4] = {GT_KERNEL(kSource, gt_attention_products_bf16),
                                             GT_KERNEL(kSource, gt_attention_products_bf16),
                                             GT_KERNEL(kSource, gt_attention_products_f16),
                                             GT_KERNEL(kSource, gt_attention_products_f16)};
  constexpr Kernel<Gradient> kQuery[4] = {GT_KERNEL(kSource, gt_attention_grad_query_64_bf16),
                                          GT_KERNEL(kSource, gt_attention_grad_query_128_bf16),
                                          GT_KERNEL(kSource, gt_attention_grad_query_64_f16),
                                          GT_KERNEL(kSource, gt_attention_grad_query_128_f16)};
  constexpr Kernel<Gradient> kKey[4] = {GT_KERNEL(kSource, gt_attention_grad_key_64_bf16),
                                        GT_KERNEL(kSource, gt_attention_grad_key_128_bf16),
                                        GT_KERNEL(kSource, gt_attention_grad_key_64_f16),
                                        GT_KERNEL(kSource, gt_attention_grad_key_128_f16)};
  const auto products = chosen(kProducts, given);
  const DeviceAttention call = call_of(given);
  const AttentionSizes& sizes = given.sizes;
  const DeviceAttentionGradient gradient{
      rows_of("grad", made.grad), at<float>(made.products), at<std::uint16_t>(made.grad_query),
      at<std::uint16_t>(made.grad_key), at<std::uint16_t>(made.grad_value)};
  if (sizes.batches == 0 || (sizes.queries == 0 && sizes.keys == 0)) {
    return;
  }
  const Queue queue{
      launcher.device_of("attention",
                         {given.query.address, given.key.address, given.value.address, given.seeds,
                          given.output, given.logsumexp, made.grad.address, made.products,
                          made.grad_query, made.grad_key, made.grad_value}),
      given.queue_stream};
  if (sizes.queries > 0) {
    launcher.launch(products,
                    tile_grid<AttentionProductsTile>(sizes.queries, sizes.heads, sizes.batches),
                    queue, call, gradient);
  }
  if (is_for_hopper(launcher.facts(queue.device), given) && is_for_hopper(sizes, made.grad)) {
    return hopper_attention_backward(launcher, given, made.grad, call, gradient, queue);
  }
  if (sizes.queries > 0) {
    launcher.launch(chosen(kQuery, given),
                    shared_grid<AttentionQueryTile>(sizes.queries, sizes.heads, sizes), queue, call,
                    gradient);
  }
  if (sizes.keys > 0) {
    launcher.launch(chosen(kKey, given),
                    shared_grid<AttentionKeyTile>(sizes.keys, sizes.key_heads, sizes), queue, call,
                    gradient);
  }
}

}  // namespace gt::cuda
