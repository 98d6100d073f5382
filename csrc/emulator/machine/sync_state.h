// Interface of synchronization to the machine: forgetting state between launches and with a block,
// releasing threads, and completing asynchronous copies on mbarriers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/machine/machine.h"

namespace gt::emulator {

// Wakes the waiting threads and joins `clock` into theirs.
void release(std::vector<Thread*>& waiting, const Clock& clock);

// Reserves the next time of the copies that complete on this mbarrier. Stops the launch with a
// fault where there is no mbarrier.
Epoch copy_epoch(std::uint64_t* barrier);
// Completes a copy: `bytes` fewer are pending.
void complete_copy(std::uintptr_t barrier, std::uint32_t bytes, Epoch epoch);

void forget_sync_state();
void forget_published();
void forget_barriers(std::uintptr_t begin, std::size_t bytes);

}  // namespace gt::emulator
