// Every kernel of csrc/cuda, by the name under which the driver finds it.
#pragma once

#include "cuda/worker_kernels.h"

namespace gt {

struct AllReducePeers;  // cuda/all_reduce.h
struct AllReduceCall;

}  // namespace gt

extern "C" {

// ---- all_reduce.cu: grid (blocks, ranks of this launch), cooperative; at least as many threads a
// block as ranks ----
__global__ void gt_all_reduce_one_shot_f32(gt::AllReducePeers peers, gt::AllReduceCall call);
__global__ void gt_all_reduce_two_shot_f32(gt::AllReducePeers peers, gt::AllReduceCall call);
}
