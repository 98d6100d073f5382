// All-reduce in one launch a rank, or one launch for several ranks of one device. All blocks of all
// ranks must be resident at once (a cooperative launch). Compiled, and run under the emulator; over
// a real link it has not run.
#include "cuda/all_reduce.h"
#include "cuda/kernels.h"

extern "C" {

__global__ void __launch_bounds__(512)
    gt_all_reduce_one_shot_f32(gt::AllReducePeers peers, gt::AllReduceCall call) {
  gt::all_reduce_one_shot(peers, call);
}

__global__ void __launch_bounds__(512)
    gt_all_reduce_two_shot_f32(gt::AllReducePeers peers, gt::AllReduceCall call) {
  gt::all_reduce_two_shot(peers, call);
}
}
