// Reductions over buffers that all ranks can reach: device code, called by all_reduce.cu.
// Contributions are added in the order of the ranks, so all ranks get the same bits, every time.
#pragma once

#include "cuda/elements.h"
#include "cuda/meeting.h"

namespace gt {
namespace {

// Sum over the ranks of element i of their slots.
template <class Element>
__device__ typename Element::Stored sum_of(const CollectivePeers& peers, const CollectiveCall& call,
                                           std::int64_t i) {
  using T = typename Element::Stored;
  float sum = Element::wide(slot_of<T>(peers, call, 0)[i]);
  for (std::uint32_t rank = 1; rank < call.ranks; ++rank) {
    sum += Element::wide(slot_of<T>(peers, call, rank)[i]);
  }
  return Element::narrow(sum);
}

// Every rank reads the inputs of all: (ranks - 1) * elements over the link, one barrier. A slot
// holds `elements`.
template <class Element>
__device__ void all_reduce_one_shot(const CollectivePeers& peers, const CollectiveCall& call) {
  using T = typename Element::Stored;
  const std::uint32_t rank = call.first_rank + blockIdx.y;
  const Range mine = part_of({0, call.elements}, blockIdx.x, gridDim.x);
  copy(static_cast<const T*>(peers.input[rank]), mine, slot_of<T>(peers, call, rank));
  if (!meet(peers, call, 0)) {
    return;
  }
  T* output = static_cast<T*>(peers.output[rank]);
  for (std::int64_t i = mine.begin + threadIdx.x; i < mine.end; i += blockDim.x) {
    output[i] = sum_of<Element>(peers, call, i);
  }
}

// Every rank sums its part and reads the other ranks' sums: 2 * elements over the link, two
// barriers. A slot holds 2 * `elements`.
template <class Element>
__device__ void all_reduce_two_shot(const CollectivePeers& peers, const CollectiveCall& call) {
  using T = typename Element::Stored;
  const std::uint32_t rank = call.first_rank + blockIdx.y;
  const Range mine = part_of({0, call.elements}, blockIdx.x, gridDim.x);
  copy(static_cast<const T*>(peers.input[rank]), mine, slot_of<T>(peers, call, rank));
  if (!meet(peers, call, 0)) {
    return;
  }
  T* sums = slot_of<T>(peers, call, rank) + call.elements;
  const Range own = part_of(mine, rank, call.ranks);
  for (std::int64_t i = own.begin + threadIdx.x; i < own.end; i += blockDim.x) {
    sums[i] = sum_of<Element>(peers, call, i);
  }
  if (!meet(peers, call, 1)) {
    return;
  }
  for (std::uint32_t owner = 0; owner < call.ranks; ++owner) {
    copy<T>(slot_of<T>(peers, call, owner) + call.elements, part_of(mine, owner, call.ranks),
            static_cast<T*>(peers.output[rank]));
  }
}

// Rank r gets part r of the sum: its input and a slot have ranks * `elements`, its output
// `elements`. One barrier.
template <class Element>
__device__ void reduce_scatter(const CollectivePeers& peers, const CollectiveCall& call) {
  using T = typename Element::Stored;
  const std::uint32_t rank = call.first_rank + blockIdx.y;
  const Range mine = part_of({0, call.elements}, blockIdx.x, gridDim.x);
  for (std::uint32_t owner = 0; owner < call.ranks; ++owner) {
    const std::int64_t offset = owner * call.elements;
    copy(static_cast<const T*>(peers.input[rank]) + offset, mine,
         slot_of<T>(peers, call, rank) + offset);
  }
  if (!meet(peers, call, 0)) {
    return;
  }
  T* output = static_cast<T*>(peers.output[rank]);
  for (std::int64_t i = mine.begin + threadIdx.x; i < mine.end; i += blockDim.x) {
    output[i] = sum_of<Element>(peers, call, rank * call.elements + i);
  }
}

}  // namespace
}  // namespace gt
