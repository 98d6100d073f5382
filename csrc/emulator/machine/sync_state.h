// What the machine forgets of synchronization: between launches all, with a block its mbarriers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gt::emulator {

void forget_sync_state();
void forget_published();
void forget_barriers(std::uintptr_t begin, std::size_t bytes);

}  // namespace gt::emulator
