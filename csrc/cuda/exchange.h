// Point-to-point messages between ranks: arguments.
#pragma once

#include "cuda/collectives.h"

namespace gt {

constexpr std::uint32_t kNobody = ~0U;

// Addresses as this device sees them. A receiver has a box of two slots for each sender.
struct ExchangePeers {
  const void* input[kRanksMax];       // one for each rank of this launch
  void* output[kRanksMax];            // one for each rank of this launch
  unsigned char* boxes[kRanksMax];    // [senders, 2 slots]
  std::uint32_t* arrived[kRanksMax];  // of a receiver, [blocks, senders]: chunks that arrived
  std::uint32_t* taken[kRanksMax];    // of a sender, [blocks, receivers]: chunks that were read
  std::uint32_t* error[kRanksMax];    // 0, or 1 + the rank that did not come
};

// A message is sent in chunks of a slot. Each ordered pair of ranks numbers its chunks 1, 2, 3, ...
// over all messages.
struct Message {
  std::uint32_t peer;         // or kNobody
  std::uint32_t first_chunk;  // number of its first chunk
  std::int64_t elements;
};

struct ExchangeCall {
  std::uint32_t first_rank;  // rank of blockIdx.y 0; a launch may run several ranks
  std::uint32_t ranks;
  Message send[kRanksMax];
  Message receive[kRanksMax];
  std::int64_t slot_elements;  // elements of a slot; their bytes are a multiple of 16
  std::uint64_t timeout_nanoseconds;
};

}  // namespace gt
