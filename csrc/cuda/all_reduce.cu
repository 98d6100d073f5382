// Kernels of all-reduce and reduce-scatter (cuda/collectives.h). Tested under the emulator; not yet
// run over a real link.
#include "cuda/all_reduce.h"
#include "cuda/kernels.h"

extern "C" {

__global__ void __launch_bounds__(512)
    gt_all_reduce_one_shot_f32(gt::CollectivePeers peers, gt::CollectiveCall call) {
  gt::all_reduce_one_shot<gt::Float32>(peers, call);
}

__global__ void __launch_bounds__(512)
    gt_all_reduce_one_shot_bf16(gt::CollectivePeers peers, gt::CollectiveCall call) {
  gt::all_reduce_one_shot<gt::Bfloat16>(peers, call);
}

__global__ void __launch_bounds__(512)
    gt_all_reduce_one_shot_f16(gt::CollectivePeers peers, gt::CollectiveCall call) {
  gt::all_reduce_one_shot<gt::Float16>(peers, call);
}

__global__ void __launch_bounds__(512)
    gt_all_reduce_two_shot_f32(gt::CollectivePeers peers, gt::CollectiveCall call) {
  gt::all_reduce_two_shot<gt::Float32>(peers, call);
}

__global__ void __launch_bounds__(512)
    gt_all_reduce_two_shot_bf16(gt::CollectivePeers peers, gt::CollectiveCall call) {
  gt::all_reduce_two_shot<gt::Bfloat16>(peers, call);
}

__global__ void __launch_bounds__(512)
    gt_all_reduce_two_shot_f16(gt::CollectivePeers peers, gt::CollectiveCall call) {
  gt::all_reduce_two_shot<gt::Float16>(peers, call);
}

__global__ void __launch_bounds__(512)
    gt_reduce_scatter_f32(gt::CollectivePeers peers, gt::CollectiveCall call) {
  gt::reduce_scatter<gt::Float32>(peers, call);
}

__global__ void __launch_bounds__(512)
    gt_reduce_scatter_bf16(gt::CollectivePeers peers, gt::CollectiveCall call) {
  gt::reduce_scatter<gt::Bfloat16>(peers, call);
}

__global__ void __launch_bounds__(512)
    gt_reduce_scatter_f16(gt::CollectivePeers peers, gt::CollectiveCall call) {
  gt::reduce_scatter<gt::Float16>(peers, call);
}
}
