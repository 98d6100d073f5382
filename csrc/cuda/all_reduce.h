// All-reduce over buffers that all ranks can reach: device code, called by all_reduce.cu. Sums go
// in the order of the ranks, so all ranks get the same bits, every time.
//
// Block b of a rank deals only with block b of the others, so a flag between these two is enough.
// Flags hold growing numbers, have one writer each and are never reset. Staging has two slots that
// alternate by call: who enters call n + 1 knows from call n that everyone is done with call n - 1.
#pragma once

#include <gt_device.h>

namespace gt {

constexpr std::uint32_t kRanksMax = 8;

// Addresses as this device sees them; the same for all ranks of one launch.
struct AllReducePeers {
  const float* input[kRanksMax];
  float* output[kRanksMax];
  float* staging[kRanksMax];        // 2 * elements, for two-shot 4 * elements
  std::uint32_t* flags[kRanksMax];  // [blocks, ranks], 0 at first
  std::uint32_t* error[kRanksMax];  // 0, or 1 + the rank that did not come
};

struct AllReduceCall {
  std::uint32_t first_rank;  // blockIdx.y 0; a launch may play several ranks
  std::uint32_t ranks;
  std::uint32_t call;  // 1, 2, 3, ... alike on all ranks
  std::int64_t elements;
  std::uint64_t timeout_nanoseconds;
};

namespace {

using device::Scope;

struct Waits {
  std::uint32_t late[kRanksMax];
};

// Waits until block blockIdx.x of every rank has come here with this number. What these blocks
// wrote before is then visible. False where a rank does not come in time.
__device__ inline bool meet(const AllReducePeers& peers, const AllReduceCall& call,
                            std::uint32_t number) {
  Waits& waits = device::static_shared<Waits>();
  const std::uint32_t rank = call.first_rank + blockIdx.y;
  const std::uint32_t peer = threadIdx.x;
  __syncthreads();  // the whole block has come
  if (peer < call.ranks) {
    const std::uint32_t row = blockIdx.x * call.ranks;
    device::store_release<Scope::kSystem>(peers.flags[peer] + row + rank, number);
    const std::uint32_t* flag = peers.flags[rank] + row + peer;
    const std::uint64_t start = device::nanoseconds();
    std::uint32_t late = 0;
    // A difference with a sign: numbers may pass 2^32.
    while (late == 0 &&
           static_cast<std::int32_t>(device::load_acquire<Scope::kSystem>(flag) - number) < 0) {
      late = device::nanoseconds() - start > call.timeout_nanoseconds ? 1 : 0;
    }
    if (late != 0) {
      device::store_relaxed<Scope::kSystem>(peers.error[rank], peer + 1);
    }
    waits.late[peer] = late;
  }
  __syncthreads();  // all flags have been seen
  std::uint32_t late = 0;
  for (std::uint32_t other = 0; other < call.ranks; ++other) {
    late |= waits.late[other];
  }
  return late == 0;
}

// Element i of every rank's staging, summed.
__device__ inline float sum_of(const AllReducePeers& peers, std::uint32_t ranks, std::int64_t i) {
  float sum = peers.staging[0][i];
  for (std::uint32_t rank = 1; rank < ranks; ++rank) {
    sum += peers.staging[rank][i];
  }
  return sum;
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

__device__ inline void stage(const AllReducePeers& peers, std::uint32_t rank, Range range,
                             std::int64_t slot) {
  for (std::int64_t i = range.begin + threadIdx.x; i < range.end; i += blockDim.x) {
    peers.staging[rank][slot + i] = peers.input[rank][i];
  }
}

// Every rank reads everything: (ranks - 1) * elements over the link, one meeting.
__device__ inline void all_reduce_one_shot(const AllReducePeers& peers, const AllReduceCall& call) {
  const std::uint32_t rank = call.first_rank + blockIdx.y;
  const Range mine = part_of({0, call.elements}, blockIdx.x, gridDim.x);
  const std::int64_t slot = call.call % 2 * call.elements;
  stage(peers, rank, mine, slot);
  if (!meet(peers, call, call.call)) {
    return;
  }
  for (std::int64_t i = mine.begin + threadIdx.x; i < mine.end; i += blockDim.x) {
    peers.output[rank][i] = sum_of(peers, call.ranks, slot + i);
  }
}

// Every rank sums its part and reads the others' sums: 2 * elements over the link, two meetings.
__device__ inline void all_reduce_two_shot(const AllReducePeers& peers, const AllReduceCall& call) {
  const std::uint32_t rank = call.first_rank + blockIdx.y;
  const Range mine = part_of({0, call.elements}, blockIdx.x, gridDim.x);
  const std::int64_t slot = call.call % 2 * 2 * call.elements;
  const std::int64_t sums = slot + call.elements;
  stage(peers, rank, mine, slot);
  if (!meet(peers, call, 2 * call.call)) {
    return;
  }
  const Range own = part_of(mine, rank, call.ranks);
  for (std::int64_t i = own.begin + threadIdx.x; i < own.end; i += blockDim.x) {
    peers.staging[rank][sums + i] = sum_of(peers, call.ranks, slot + i);
  }
  if (!meet(peers, call, 2 * call.call + 1)) {
    return;
  }
  for (std::uint32_t owner = 0; owner < call.ranks; ++owner) {
    const Range part = part_of(mine, owner, call.ranks);
    for (std::int64_t i = part.begin + threadIdx.x; i < part.end; i += blockDim.x) {
      peers.output[rank][i] = peers.staging[owner][sums + i];
    }
  }
}

}  // namespace
}  // namespace gt
