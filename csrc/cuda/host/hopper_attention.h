// Launches of cuda/attention_sm90.cu and cuda/attention_backward_sm90.cu, which attention_calls.h
// chooses.
#pragma once

#include "cuda/attention.h"
#include "cuda/host/attention_calls.h"

namespace gt::cuda {

// Whether its kernels take these operands, which those of attention.cu take.
bool is_for_hopper(const DeviceFacts& facts, const AttentionLaunch& given);
// And those of the gradients this one.
bool is_for_hopper(const AttentionSizes& sizes, const AttentionOperand& grad);

// The operands are for it.
void hopper_attention(Launcher& launcher, const AttentionLaunch& given, const DeviceAttention& call,
                      const Queue& queue);
// The gradients of query, key and value, when the products are there.
void hopper_attention_backward(Launcher& launcher, const AttentionLaunch& given,
                               const AttentionOperand& grad, const DeviceAttention& call,
                               const DeviceAttentionGradient& gradient, const Queue& queue);

}  // namespace gt::cuda
