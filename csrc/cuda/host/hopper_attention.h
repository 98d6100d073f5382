// Launches of cuda/attention_sm90.cu and cuda/attention_backward_sm90.cu, which attention_calls.h
// chooses.
#pragma once

#include "cuda/attention.h"
#include "cuda/host/attention_calls.h"

namespace gt::cuda {

// True where the sm_90a kernels accept operands that those of attention.cu accept.
bool is_for_hopper(const DeviceFacts& facts, const AttentionLaunch& given);
// True where the gradients' kernels accept them, too.
bool is_for_hopper(const AttentionSizes& sizes, const AttentionOperand& grad);

// Launches attention. The operands have passed is_for_hopper().
void hopper_attention(Launcher& launcher, const AttentionLaunch& given, const DeviceAttention& call,
                      const Queue& queue);
// Launches the gradients of query, key and value. The products must be queued before.
void hopper_attention_backward(Launcher& launcher, const AttentionLaunch& given,
                               const AttentionOperand& grad, const DeviceAttention& call,
                               const DeviceAttentionGradient& gradient, const Queue& queue);

}  // namespace gt::cuda
