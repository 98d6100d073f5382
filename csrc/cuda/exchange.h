// Point-to-point messages between ranks: arguments.
#pragma once

#include "cuda/collectives.h"

namespace gt {

constexpr std::uint32_t kNobody = ~0U;

// Addresses as this device sees them. A receiver has a box of two slots for each sender.
struct ExchangePeers {
  const void* input[kRanksMax];       // of the launch's own ranks
  void* output[kRanksMax];            // of the launch's own ranks
  unsigned char* boxes[kRanksMax];    // [senders, 2 slots]
  std::uint32_t* arrived[kRanksMax];  // of a receiver, [blocks, senders]: chunks in its boxes
  std::uint32_t* taken[kRanksMax];    // of a sender, [blocks, receivers]: chunks that they took
  std::uint32_t* error[kRanksMax];    // 0, or 1 + the rank that did not come
};

// A message goes in chunks of a slot, which a pair of ranks numbers 1, 2, 3, ... over all messages
// from the one to the other.
struct Message {
  std::uint32_t peer;         // or kNobody
  std::uint32_t first_chunk;  // its number
  std::int64_t elements;
};

struct ExchangeCall {
  std::uint32_t first_rank;  // blockIdx.y 0; a launch may play several ranks
  std::uint32_t ranks;
  Message send[kRanksMax];
  Message receive[kRanksMax];
  std::int64_t slot_elements;  // of a box; their bytes are a multiple of 16
  std::uint64_t timeout_nanoseconds;
};

}  // namespace gt
