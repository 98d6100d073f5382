// Arguments and rules of collectives over memory that all ranks can reach. Each is one launch a
// rank, or one launch for several ranks of one device; all blocks of all ranks must be resident at
// once (a cooperative launch).
//
// Block b of a rank exchanges data only with block b of the others, so one flag between these two
// is enough. Flags hold growing numbers, have one writer each and are never reset: collectives of
// all kinds share one count of calls. Staging has two slots that alternate by call: a rank that
// enters call n + 1 knows from call n that all ranks are done with call n - 1. After an error none
// of this memory is used again.
//
// A process has two error words, shared by all its groups. A rank that finds one of them set, in
// whatever group, takes no further part, because its operand may depend on data that never came.
// The other ranks then time out, so that no number made of such an operand is taken for right.
#pragma once

#include <cstdint>

namespace gt {

constexpr std::uint32_t kRanksMax = 8;

// Addresses as this device sees them; the same for all ranks of one launch.
struct CollectivePeers {
  const void* input[kRanksMax];       // one for each rank of this launch
  void* output[kRanksMax];            // one for each rank of this launch
  unsigned char* staging[kRanksMax];  // two slots
  std::uint32_t* flags[kRanksMax];    // [blocks, ranks], 0 at first
  // One for each rank of this launch, two words, 0 at first: error_base + 1 + the rank that did not
  // come; and a word that other ranks write after reading tainted memory.
  std::uint32_t* error[kRanksMax];
};

struct CollectiveCall {
  std::uint32_t first_rank;  // rank of blockIdx.y 0; a launch may run several ranks
  std::uint32_t ranks;
  std::uint32_t call;  // 1, 2, 3, ... over all collectives, equal on all ranks
  std::uint32_t root;  // root of a broadcast
  std::uint32_t error_base;
  std::int64_t elements;
  std::int64_t slot_bytes;  // of staging; a multiple of 16
  std::uint64_t timeout_nanoseconds;
};

}  // namespace gt
