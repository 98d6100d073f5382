// Every kernel of csrc/cuda, by the name under which the driver finds it.
#pragma once

#include "cuda/collectives.h"
#include "cuda/exchange.h"
#include "cuda/worker_kernels.h"

extern "C" {

// ---- all_reduce.cu, gather.cu: grid (blocks, ranks of this launch), cooperative; at least as many
// threads a block as ranks ----
__global__ void gt_all_reduce_one_shot_f32(gt::CollectivePeers peers, gt::CollectiveCall call);
__global__ void gt_all_reduce_one_shot_bf16(gt::CollectivePeers peers, gt::CollectiveCall call);
__global__ void gt_all_reduce_one_shot_f16(gt::CollectivePeers peers, gt::CollectiveCall call);
__global__ void gt_all_reduce_two_shot_f32(gt::CollectivePeers peers, gt::CollectiveCall call);
__global__ void gt_all_reduce_two_shot_bf16(gt::CollectivePeers peers, gt::CollectiveCall call);
__global__ void gt_all_reduce_two_shot_f16(gt::CollectivePeers peers, gt::CollectiveCall call);
__global__ void gt_reduce_scatter_f32(gt::CollectivePeers peers, gt::CollectiveCall call);
__global__ void gt_reduce_scatter_bf16(gt::CollectivePeers peers, gt::CollectiveCall call);
__global__ void gt_reduce_scatter_f16(gt::CollectivePeers peers, gt::CollectiveCall call);
__global__ void gt_all_gather_b16(gt::CollectivePeers peers, gt::CollectiveCall call);
__global__ void gt_all_gather_b32(gt::CollectivePeers peers, gt::CollectiveCall call);
__global__ void gt_broadcast_b16(gt::CollectivePeers peers, gt::CollectiveCall call);
__global__ void gt_broadcast_b32(gt::CollectivePeers peers, gt::CollectiveCall call);

// ---- exchange.cu: the same grid ----
__global__ void gt_exchange_b16(gt::ExchangePeers peers, gt::ExchangeCall call);
__global__ void gt_exchange_b32(gt::ExchangePeers peers, gt::ExchangeCall call);
}
