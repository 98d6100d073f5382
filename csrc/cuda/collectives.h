// What collectives over memory that all ranks can reach share: flags, bounded waits, elements. Each
// is one launch a rank, or one launch for several ranks of one device; all blocks of all ranks must
// be resident at once (a cooperative launch).
//
// Block b of a rank deals only with block b of the others, so a flag between these two is enough.
// Flags hold growing numbers, have one writer each and are never reset: every collective counts as
// one call, whichever it is. Staging has two slots that alternate by call: who enters call n + 1
// knows from call n that everyone is done with call n - 1. After an error nothing of it is used
// again.
//
// A process has the same two words of errors for all its groups. Who finds one of them set, in
// whatever group, takes no part any more: its operand may follow from what never came. The others
// wait for it in vain, so that no number made of such an operand is taken for right.
#pragma once

#include <cstdint>

namespace gt {

constexpr std::uint32_t kRanksMax = 8;

// Addresses as this device sees them; the same for all ranks of one launch.
struct CollectivePeers {
  const void* input[kRanksMax];       // of the launch's own ranks
  void* output[kRanksMax];            // of the launch's own ranks
  unsigned char* staging[kRanksMax];  // two slots
  std::uint32_t* flags[kRanksMax];    // [blocks, ranks], 0 at first
  // Of the launch's own ranks, two words, 0 at first: error_base + 1 + the rank that did not come;
  // and what others write who have read of tainted memory.
  std::uint32_t* error[kRanksMax];
};

struct CollectiveCall {
  std::uint32_t first_rank;  // blockIdx.y 0; a launch may play several ranks
  std::uint32_t ranks;
  std::uint32_t call;  // 1, 2, 3, ... alike on all ranks, over all collectives
  std::uint32_t root;  // of a broadcast
  std::uint32_t error_base;
  std::int64_t elements;
  std::int64_t slot_bytes;  // of staging; a multiple of 16
  std::uint64_t timeout_nanoseconds;
};

}  // namespace gt
