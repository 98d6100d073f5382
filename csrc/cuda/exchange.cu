// Point-to-point messages: a rank sends to one rank, receives from one, or both, in one launch.
// Tested under the emulator; not yet run over a real link.
//
// A sender writes into the receiver's box, two chunks ahead of it at most, so that a ring of ranks
// that all send first makes progress. Block b of a rank exchanges data only with block b of the
// other, and all launches have the same grid, blocks and slots.
#include "cuda/exchange.h"
#include "cuda/kernels.h"
#include "cuda/meeting.h"

namespace gt {
namespace {

constexpr std::uint32_t kSlots = 2;

struct Arrival {
  std::uint32_t is_late;
};

// Waits like reaches(), for the whole block; on a timeout, records the peer that did not come.
__device__ inline bool block_reaches(const std::uint32_t* flag, std::uint32_t number,
                                     const ExchangeCall& call, std::uint32_t peer,
                                     std::uint32_t* error) {
  Arrival& arrival = device::static_shared<Arrival>();
  if (threadIdx.x == 0) {
    const bool comes = reaches(flag, number, call.timeout_nanoseconds);
    if (!comes) {
      device::store_relaxed<Scope::kSystem>(error, peer + 1);
    }
    arrival.is_late = comes ? 0 : 1;
  }
  __syncthreads();  // all threads wait for the flag
  const bool is_late = arrival.is_late != 0;
  __syncthreads();  // all have read the result before the next wait
  return !is_late;
}

// Publishes that the whole block has done its part of a chunk.
__device__ inline void publish(std::uint32_t* flag, std::uint32_t number) {
  __syncthreads();  // all threads of the block are done
  if (threadIdx.x == 0) {
    device::store_release<Scope::kSystem>(flag, number);
  }
}

// Copies this block's part of a chunk that begins at element `begin` of a message. An element's
// block depends only on its position in the slot, because blocks wait for their counterparts.
template <class T>
__device__ void copy_chunk(const Message& message, std::int64_t begin, const ExchangeCall& call,
                           const T* from, T* to) {
  const std::int64_t end =
      begin + call.slot_elements < message.elements ? begin + call.slot_elements : message.elements;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = begin + blockIdx.x * blockDim.x + threadIdx.x; i < end; i += step) {
    to[i] = from[i];
  }
}

// A slot in a receiver's box, offset so that index `begin` is its first element.
template <class T>
__device__ T* slot_at(const ExchangePeers& peers, const ExchangeCall& call, std::uint32_t sender,
                      std::uint32_t receiver, std::uint32_t number, std::int64_t begin) {
  const std::int64_t slot = std::int64_t{sender} * kSlots + number % kSlots;
  return reinterpret_cast<T*>(peers.boxes[receiver]) + (slot * call.slot_elements - begin);
}

template <class T>
__device__ bool send(const ExchangePeers& peers, const ExchangeCall& call, std::uint32_t rank,
                     std::uint32_t index, std::int64_t begin) {
  const Message& message = call.send[rank];
  const std::uint32_t number = message.first_chunk + index;
  const std::uint32_t row = blockIdx.x * call.ranks;
  // The slot is free once the chunk kSlots before this one has been taken.
  if (!block_reaches(peers.taken[rank] + row + message.peer, number - kSlots, call, message.peer,
                     peers.error[rank])) {
    return false;
  }
  copy_chunk(message, begin, call, static_cast<const T*>(peers.input[rank]),
             slot_at<T>(peers, call, rank, message.peer, number, begin));
  publish(peers.arrived[message.peer] + row + rank, number);
  return true;
}

template <class T>
__device__ bool receive(const ExchangePeers& peers, const ExchangeCall& call, std::uint32_t rank,
                        std::uint32_t index, std::int64_t begin) {
  const Message& message = call.receive[rank];
  const std::uint32_t number = message.first_chunk + index;
  const std::uint32_t row = blockIdx.x * call.ranks;
  if (!block_reaches(peers.arrived[rank] + row + message.peer, number, call, message.peer,
                     peers.error[rank])) {
    return false;
  }
  copy_chunk<T>(message, begin, call, slot_at<T>(peers, call, message.peer, rank, number, begin),
                static_cast<T*>(peers.output[rank]));
  publish(peers.taken[message.peer] + row + rank, number);
  return true;
}

template <class T>
__device__ void exchange(const ExchangePeers& peers, const ExchangeCall& call) {
  const std::uint32_t rank = call.first_rank + blockIdx.y;
  const std::int64_t sent = call.send[rank].peer == kNobody ? 0 : call.send[rank].elements;
  const std::int64_t received =
      call.receive[rank].peer == kNobody ? 0 : call.receive[rank].elements;
  std::uint32_t index = 0;
  for (std::int64_t begin = 0; begin < sent || begin < received; begin += call.slot_elements) {
    if (begin < sent && !send<T>(peers, call, rank, index, begin)) {
      return;
    }
    if (begin < received && !receive<T>(peers, call, rank, index, begin)) {
      return;
    }
    ++index;
  }
}

}  // namespace
}  // namespace gt

extern "C" {

__global__ void __launch_bounds__(512)
    gt_exchange_b16(gt::ExchangePeers peers, gt::ExchangeCall call) {
  gt::exchange<std::uint16_t>(peers, call);
}

__global__ void __launch_bounds__(512)
    gt_exchange_b32(gt::ExchangePeers peers, gt::ExchangeCall call) {
  gt::exchange<std::uint32_t>(peers, call);
}
}
