// Collectives that move elements and compute nothing: device code, called by gather.cu.
#pragma once

#include "cuda/meeting.h"

namespace gt {
namespace {

// Every rank gets the inputs of all, of `elements` each, in the order of ranks. One barrier.
template <class T>
__device__ void all_gather(const CollectivePeers& peers, const CollectiveCall& call) {
  const std::uint32_t rank = call.first_rank + blockIdx.y;
  const Range mine = part_of({0, call.elements}, blockIdx.x, gridDim.x);
  copy(static_cast<const T*>(peers.input[rank]), mine, slot_of<T>(peers, call, rank));
  if (!meet(peers, call, 0)) {
    return;
  }
  for (std::uint32_t owner = 0; owner < call.ranks; ++owner) {
    copy<T>(slot_of<T>(peers, call, owner), mine,
            static_cast<T*>(peers.output[rank]) + owner * call.elements);
  }
}

// Every rank gets the root's input. One barrier.
template <class T>
__device__ void broadcast(const CollectivePeers& peers, const CollectiveCall& call) {
  const std::uint32_t rank = call.first_rank + blockIdx.y;
  const Range mine = part_of({0, call.elements}, blockIdx.x, gridDim.x);
  if (rank == call.root) {
    copy(static_cast<const T*>(peers.input[rank]), mine, slot_of<T>(peers, call, rank));
  }
  if (!meet(peers, call, 0)) {
    return;
  }
  copy<T>(slot_of<T>(peers, call, call.root), mine, static_cast<T*>(peers.output[rank]));
}

}  // namespace
}  // namespace gt
