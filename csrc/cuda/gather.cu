// Kernels of all-gather and broadcast (cuda/collectives.h), one for each element size in bits.
// Tested under the emulator; not yet run over a real link.
#include "cuda/gather.h"
#include "cuda/kernels.h"

extern "C" {

__global__ void __launch_bounds__(512)
    gt_all_gather_b16(gt::CollectivePeers peers, gt::CollectiveCall call) {
  gt::all_gather<std::uint16_t>(peers, call);
}

__global__ void __launch_bounds__(512)
    gt_all_gather_b32(gt::CollectivePeers peers, gt::CollectiveCall call) {
  gt::all_gather<std::uint32_t>(peers, call);
}

__global__ void __launch_bounds__(512)
    gt_broadcast_b16(gt::CollectivePeers peers, gt::CollectiveCall call) {
  gt::broadcast<std::uint16_t>(peers, call);
}

__global__ void __launch_bounds__(512)
    gt_broadcast_b32(gt::CollectivePeers peers, gt::CollectiveCall call) {
  gt::broadcast<std::uint32_t>(peers, call);
}
}
