// Several collectives in one launch, so that ranks can run ahead of each other.
#include "cuda/all_reduce.h"
#include "cuda/gather.h"

namespace gt::testing {

// Waits until all blocks of the rank are done, as a stream does between two launches. Args: done, a
// word of the rank, 0 at first.
__device__ inline void end_launch(std::uint32_t* done, std::uint32_t launches) {
  __syncthreads();
  if (threadIdx.x == 0) {
    device::add_acquire_release<Scope::kDevice>(done, 1);
    while (device::load_acquire<Scope::kDevice>(done) < launches * gridDim.x) {
    }
  }
  __syncthreads();
}

// Runs kinds of calls in turn: one-shot, two-shot, reduce-scatter into the first part of the
// output, all-gather of the first part of the input, broadcast.
void repeated_collectives(CollectivePeers peers, CollectiveCall call, std::uint32_t calls,
                          std::uint32_t* done) {
  const std::int64_t all = call.elements;
  for (std::uint32_t i = 0; i < calls; ++i) {
    call.elements = i % 5 == 2 || i % 5 == 3 ? all / call.ranks : all;
    switch (i % 5) {
      case 0:
        all_reduce_one_shot<Float32>(peers, call);
        break;
      case 1:
        all_reduce_two_shot<Float32>(peers, call);
        break;
      case 2:
        reduce_scatter<Float32>(peers, call);
        break;
      case 3:
        all_gather<float>(peers, call);
        break;
      default:
        call.root = i / 5 % call.ranks;
        broadcast<float>(peers, call);
        break;
    }
    ++call.call;
    end_launch(done + call.first_rank + blockIdx.y, i + 1);
  }
}

}  // namespace gt::testing
