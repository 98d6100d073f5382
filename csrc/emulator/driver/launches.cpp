#include "emulator/driver/launches.h"

#include <cstring>
#include <tuple>
#include <utility>

#include "cuda/kernels.h"

namespace gt::emulator {
namespace {

void append_bytes(std::string& text, const void* value, std::size_t bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  text += text.empty() ? "" : " ";
  for (std::size_t i = 0; i < bytes; ++i) {
    const unsigned byte = static_cast<const unsigned char*>(value)[i];
    text += kDigits[byte / 16];
    text += kDigits[byte % 16];
  }
}

template <class Signature>
struct Unpacked;
template <class... P>
struct Unpacked<void(P...)> {
  template <void (*kernel)(P...)>
  static Statistics play(const Launch& wanted, void** arguments, std::string& packed) {
    std::tuple<P...> given;
    std::size_t at = 0;
    std::apply(
        [&](auto&... each) {
          const auto take = [&](void* to, std::size_t bytes) {
            std::memcpy(to, arguments[at++], bytes);
            append_bytes(packed, to, bytes);
          };
          (take(static_cast<void*>(&each), sizeof(each)), ...);
        },
        given);
    return launch(wanted, [&] { std::apply(kernel, given); });
  }
};

}  // namespace

const std::map<std::string, Play>& kernels_by_name() {
#define GT_ROW(name)                              \
  {                                               \
    #name, &Unpacked<decltype(name)>::play<&name> \
  }
  static const std::map<std::string, Play> all = {
      GT_ROW(gt_uniform_f32),
      GT_ROW(gt_uniform_f64),
      GT_ROW(gt_uniform_bf16),
      GT_ROW(gt_uniform_f16),
      GT_ROW(gt_normal_f32),
      GT_ROW(gt_normal_f64),
      GT_ROW(gt_normal_bf16),
      GT_ROW(gt_normal_f16),
      GT_ROW(gt_integers_i64),
      GT_ROW(gt_integers_i32),
      GT_ROW(gt_bernoulli_mask),
      GT_ROW(gt_dropout_mask),
      GT_ROW(gt_dropout_f32),
      GT_ROW(gt_cross_entropy_f32),
      GT_ROW(gt_cross_entropy_bf16),
      GT_ROW(gt_cross_entropy_f16),
      GT_ROW(gt_cross_entropy_backward_f32),
      GT_ROW(gt_cross_entropy_backward_bf16),
      GT_ROW(gt_cross_entropy_backward_f16),
      GT_ROW(gt_rms_norm_f32),
      GT_ROW(gt_rms_norm_bf16),
      GT_ROW(gt_rms_norm_f16),
      GT_ROW(gt_layer_norm_f32),
      GT_ROW(gt_layer_norm_bf16),
      GT_ROW(gt_layer_norm_f16),
      GT_ROW(gt_rms_norm_backward_f32),
      GT_ROW(gt_rms_norm_backward_bf16),
      GT_ROW(gt_rms_norm_backward_f16),
      GT_ROW(gt_layer_norm_backward_f32),
      GT_ROW(gt_layer_norm_backward_bf16),
      GT_ROW(gt_layer_norm_backward_f16),
      GT_ROW(gt_add_sums_f32),
      GT_ROW(gt_add_sums_bf16),
      GT_ROW(gt_add_sums_f16),
      GT_ROW(gt_adamw_f32),
      GT_ROW(gt_all_reduce_one_shot_f32),
      GT_ROW(gt_all_reduce_one_shot_bf16),
      GT_ROW(gt_all_reduce_one_shot_f16),
      GT_ROW(gt_all_reduce_two_shot_f32),
      GT_ROW(gt_all_reduce_two_shot_bf16),
      GT_ROW(gt_all_reduce_two_shot_f16),
      GT_ROW(gt_reduce_scatter_f32),
      GT_ROW(gt_reduce_scatter_bf16),
      GT_ROW(gt_reduce_scatter_f16),
      GT_ROW(gt_all_gather_b16),
      GT_ROW(gt_all_gather_b32),
      GT_ROW(gt_broadcast_b16),
      GT_ROW(gt_broadcast_b32),
      GT_ROW(gt_exchange_b16),
      GT_ROW(gt_exchange_b32),
      GT_ROW(gt_gemm_nn_bf16),
      GT_ROW(gt_gemm_nt_bf16),
      GT_ROW(gt_gemm_tn_bf16),
      GT_ROW(gt_gemm_nn_f16),
      GT_ROW(gt_gemm_nt_f16),
      GT_ROW(gt_gemm_tn_f16),
      GT_ROW(gt_grouped_gemm_nn_bf16),
      GT_ROW(gt_grouped_gemm_nt_bf16),
      GT_ROW(gt_grouped_gemm_tn_bf16),
      GT_ROW(gt_grouped_gemm_nn_f16),
      GT_ROW(gt_grouped_gemm_nt_f16),
      GT_ROW(gt_grouped_gemm_tn_f16),
      GT_ROW(gt_skinny_nt_bf16),
      GT_ROW(gt_skinny_nt_f16),
      GT_ROW(gt_attention_64_bf16),
      GT_ROW(gt_attention_128_bf16),
      GT_ROW(gt_attention_64_f16),
      GT_ROW(gt_attention_128_f16),
      GT_ROW(gt_attention_products_bf16),
      GT_ROW(gt_attention_products_f16),
      GT_ROW(gt_attention_grad_query_64_bf16),
      GT_ROW(gt_attention_grad_query_128_bf16),
      GT_ROW(gt_attention_grad_query_64_f16),
      GT_ROW(gt_attention_grad_query_128_f16),
      GT_ROW(gt_attention_grad_key_64_bf16),
      GT_ROW(gt_attention_grad_key_128_bf16),
      GT_ROW(gt_attention_grad_key_64_f16),
      GT_ROW(gt_attention_grad_key_128_f16),
      GT_ROW(gt_attention_sm90_64_bf16),
      GT_ROW(gt_attention_sm90_128_bf16),
      GT_ROW(gt_attention_sm90_64_f16),
      GT_ROW(gt_attention_sm90_128_f16),
      GT_ROW(gt_attention_grad_query_sm90_64_bf16),
      GT_ROW(gt_attention_grad_query_sm90_128_bf16),
      GT_ROW(gt_attention_grad_query_sm90_64_f16),
      GT_ROW(gt_attention_grad_query_sm90_128_f16),
      GT_ROW(gt_attention_grad_key_sm90_64_bf16),
      GT_ROW(gt_attention_grad_key_sm90_128_bf16),
      GT_ROW(gt_attention_grad_key_sm90_64_f16),
      GT_ROW(gt_attention_grad_key_sm90_128_f16),
      GT_ROW(gt_gemm_sm90_256_nn_bf16),
      GT_ROW(gt_gemm_sm90_256_nt_bf16),
      GT_ROW(gt_gemm_sm90_256_tn_bf16),
      GT_ROW(gt_gemm_sm90_256_nn_f16),
      GT_ROW(gt_gemm_sm90_256_nt_f16),
      GT_ROW(gt_gemm_sm90_256_tn_f16),
      GT_ROW(gt_gemm_sm90_128_nn_bf16),
      GT_ROW(gt_gemm_sm90_128_nt_bf16),
      GT_ROW(gt_gemm_sm90_128_tn_bf16),
      GT_ROW(gt_gemm_sm90_128_nn_f16),
      GT_ROW(gt_gemm_sm90_128_nt_f16),
      GT_ROW(gt_gemm_sm90_128_tn_f16),
  };
#undef GT_ROW
  return all;
}

}  // namespace gt::emulator
