// What synchronization is to the machine itself: what is forgotten between launches and with a
// block, who is released, and how an asynchronous copy arrives at an mbarrier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/machine/machine.h"

namespace gt::emulator {

// Threads that waited go on, and know what the clock knows.
void release(std::vector<Thread*>& waiting, const Clock& clock);

// The next time of what completes on this mbarrier. Stops the launch where there is none.
Epoch copy_epoch(std::uint64_t* barrier);
// A copy has arrived: `bytes` fewer are pending.
void complete_copy(std::uintptr_t barrier, std::uint32_t bytes, Epoch epoch);

void forget_sync_state();
void forget_published();
void forget_barriers(std::uintptr_t begin, std::size_t bytes);

}  // namespace gt::emulator
