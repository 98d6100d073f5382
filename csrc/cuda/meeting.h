// Device code that collectives share: flags, bounded waits, ranges of blocks.
#pragma once

#include <gt_device.h>

#include "cuda/collectives.h"

namespace gt {
namespace {

using device::Scope;

// Waits until a flag reaches `number`; the writes before its release are then visible. False on a
// timeout.
__device__ inline bool reaches(const std::uint32_t* flag, std::uint32_t number,
                               std::uint64_t timeout_nanoseconds) {
  const std::uint64_t start = device::nanoseconds();
  // The difference is signed, because numbers may wrap at 2^32.
  while (static_cast<std::int32_t>(device::load_acquire<Scope::kSystem>(flag) - number) < 0) {
    if (device::nanoseconds() - start > timeout_nanoseconds) {
      return false;
    }
  }
  return true;
}

struct Waits {
  std::uint32_t late[kRanksMax];
};

__device__ inline bool is_tainted(const std::uint32_t* error) {
  return (device::load_relaxed<Scope::kSystem>(error) |
          device::load_relaxed<Scope::kSystem>(error + 1)) != 0;
}

// Waits at the `part`th barrier of this call, of up to two, until block blockIdx.x of every rank
// has come. Writes of these blocks before the barrier are then visible. Returns false where a rank
// does not come in time, or where this one stays away because of an earlier error.
__device__ inline bool meet(const CollectivePeers& peers, const CollectiveCall& call,
                            std::uint32_t part) {
  Waits& waits = device::static_shared<Waits>();
  const std::uint32_t number = 2 * call.call + part;
  const std::uint32_t rank = call.first_rank + blockIdx.y;
  const std::uint32_t peer = threadIdx.x;
  __syncthreads();  // the whole block has come
  if (peer < call.ranks) {
    const std::uint32_t row = blockIdx.x * call.ranks;
    bool comes = !is_tainted(peers.error[rank]);
    if (comes) {
      device::store_release<Scope::kSystem>(peers.flags[peer] + row + rank, number);
      comes = reaches(peers.flags[rank] + row + peer, number, call.timeout_nanoseconds);
      if (!comes) {
        device::store_relaxed<Scope::kSystem>(peers.error[rank], call.error_base + peer + 1);
      }
    }
    waits.late[peer] = comes ? 0 : 1;
  }
  __syncthreads();  // all flags have been seen
  std::uint32_t late = 0;
  for (std::uint32_t other = 0; other < call.ranks; ++other) {
    late |= waits.late[other];
  }
  return late == 0;
}

struct Range {
  std::int64_t begin, end;
};

// Part `index` of `parts` of a range.
__device__ inline Range part_of(Range whole, std::int64_t index, std::int64_t parts) {
  const std::int64_t size = (whole.end - whole.begin + parts - 1) / parts;
  const std::int64_t begin = whole.begin + index * size;
  const std::int64_t end = begin + size;
  return {begin < whole.end ? begin : whole.end, end < whole.end ? end : whole.end};
}

template <class T>
__device__ T* slot_of(const CollectivePeers& peers, const CollectiveCall& call,
                      std::uint32_t rank) {
  return reinterpret_cast<T*>(peers.staging[rank] + call.call % 2 * call.slot_bytes);
}

template <class T>
__device__ void copy(const T* from, Range range, T* to) {
  for (std::int64_t i = range.begin + threadIdx.x; i < range.end; i += blockDim.x) {
    to[i] = from[i];
  }
}

}  // namespace
}  // namespace gt
