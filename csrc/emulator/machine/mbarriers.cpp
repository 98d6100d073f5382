// mbarriers: PTX ISA 9.7.13.15. A phase completes when its arrivals and its expected bytes have
// come. A waiting thread then knows the events of the threads that arrived, as far as the scopes
// reach.
#include <unordered_map>

#include "emulator/machine/instructions.h"
#include "emulator/machine/sync_state.h"

namespace gt::emulator {
namespace {

constexpr std::int64_t kBytesMax = (1 << 20) - 1;  // tx-count

// Clocks that arrivals pass on: of the barrier's own block, and of the cluster.
struct Handed {
  Clock own;
  Clock far;

  const Clock& seen(Reach reach) const { return reach == Reach::kCluster ? far : own; }
};

struct MemoryBarrier {
  std::uint32_t block = 0;
  std::string name;       // name of its region, with the offset there
  unsigned arrivals = 0;  // arrivals that complete a phase
  unsigned pending = 0;
  std::int64_t bytes = 0;  // expected and still pending
  std::uint64_t phase = 0;
  Epoch copies;  // copies that complete here: their agent, and its last time
  Handed gathering;
  Handed completed;
  std::vector<Thread*> waiting[2];  // by Reach
};

std::unordered_map<std::uintptr_t, MemoryBarrier>& memory_barriers() {
  static std::unordered_map<std::uintptr_t, MemoryBarrier> all;
  return all;
}

MemoryBarrier* find(std::uintptr_t address) {
  const auto found = memory_barriers().find(address);
  return found == memory_barriers().end() ? nullptr : &found->second;
}

MemoryBarrier& checked(std::uint64_t* barrier) {
  const auto address = reinterpret_cast<std::uintptr_t>(barrier);
  checked_touch({address, sizeof(*barrier), Access::kRead, Scope::kBlock, 0});
  MemoryBarrier* state = find(address);
  if (state == nullptr) {
    fail(FaultKind::kMisuse, "the mbarrier was not initialized");
  }
  return *state;
}

// PTX: a thread may wait only on barriers of its own block.
MemoryBarrier& checked_own(const char* instruction, std::uint64_t* barrier) {
  MemoryBarrier& state = checked(barrier);
  if (state.block != current->block->number) {
    fail(FaultKind::kMisuse, message(instruction, ": the mbarrier is another block's"));
  }
  return state;
}

void complete_phase(MemoryBarrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes != 0) {
    return;
  }
  ++barrier.phase;
  barrier.pending = barrier.arrivals;
  barrier.completed = barrier.gathering;
  for (const Reach reach : {Reach::kBlock, Reach::kCluster}) {
    release(barrier.waiting[static_cast<int>(reach)], barrier.completed.seen(reach));
  }
}

std::string pending_text(const MemoryBarrier& state, unsigned parity) {
  return message("the mbarrier at ", state.name, ", parity ", parity, " (it is in phase ",
                 state.phase, ", ", state.pending, " of ", state.arrivals, " arrivals and ",
                 state.bytes, " bytes pending)");
}

}  // namespace

void mbarrier_init(std::uint64_t* barrier, unsigned arrivals) {
  const auto address = reinterpret_cast<std::uintptr_t>(barrier);
  const Region& region =
      checked_touch({address, sizeof(*barrier), Access::kWrite, Scope::kPlain, 0});
  if (arrivals == 0 || arrivals >= (1U << 20)) {
    fail(FaultKind::kMisuse, message("mbarrier.init: count ", arrivals, " is not in [1, 2^20)"));
  }
  MemoryBarrier fresh;
  fresh.block = region.owner.block;
  fresh.name = message(region.name, " + ", address - region.begin);
  fresh.arrivals = arrivals;
  fresh.pending = arrivals;
  memory_barriers()[address] = fresh;
}

void mbarrier_arrive(std::uint64_t* barrier, unsigned count, std::uint32_t expected_bytes,
                     Reach reach) {
  MemoryBarrier& state = checked(barrier);
  if (count > state.pending) {
    fail(FaultKind::kMisuse, message("mbarrier phase ", state.phase, ": ", count,
                                     " arrivals where ", state.pending, " are pending"));
  }
  state.bytes += expected_bytes;
  if (state.bytes > kBytesMax) {
    fail(FaultKind::kMisuse, message("mbarrier: ", state.bytes, " bytes expected in one phase, ",
                                     kBytesMax, " at most"));
  }
  if (state.block == current->block->number) {
    state.gathering.own.join(current->clock);
    state.gathering.far.join(current->clock);
  } else if (reach == Reach::kCluster) {
    state.gathering.far.join(current->clock);
  }
  current->clock.tick(current->number);
  state.pending -= count;
  complete_phase(state);
}

void mbarrier_complete_bytes(std::uint64_t* barrier, std::uint32_t bytes) {
  MemoryBarrier& state = checked(barrier);
  state.bytes -= bytes;
  state.gathering.own.join(current->clock);
  state.gathering.far.join(current->clock);
  current->clock.tick(current->number);
  complete_phase(state);
}

Epoch copy_epoch(std::uint64_t* barrier) {
  MemoryBarrier& state = checked(barrier);
  if (state.copies.thread == 0) {
    state.copies.thread = machine->add_agent();
  }
  ++state.copies.time;
  return state.copies;
}

void complete_copy(std::uintptr_t barrier, std::uint32_t bytes, Epoch epoch) {
  MemoryBarrier* state = find(barrier);
  if (state == nullptr) {
    throw Fault(FaultKind::kMisuse, "a copy arrives at an mbarrier that is no more");
  }
  state->bytes -= bytes;
  if (state->bytes < -kBytesMax) {
    throw Fault(FaultKind::kMisuse,
                message("mbarrier: ", -state->bytes, " bytes have come that no arrival expects"));
  }
  state->gathering.own.learn(epoch);
  state->gathering.far.learn(epoch);
  complete_phase(*state);
}

bool mbarrier_test_wait(std::uint64_t* barrier, unsigned parity) {
  MemoryBarrier& state = checked_own("mbarrier.test_wait", barrier);
  machine->yield();
  if (state.phase % 2 == parity) {
    return false;
  }
  current->clock.join(state.completed.own);
  return true;
}

void mbarrier_wait(std::uint64_t* barrier, unsigned parity, Reach reach) {
  MemoryBarrier& state = checked_own("mbarrier.try_wait", barrier);
  if (state.phase % 2 != parity) {
    current->clock.join(state.completed.seen(reach));
    return;
  }
  state.waiting[static_cast<int>(reach)].push_back(current);
  machine->wait([&state, parity] { return pending_text(state, parity); });
}

void forget_sync_state() {
  memory_barriers().clear();
  forget_published();
}

void forget_barriers(std::uintptr_t begin, std::size_t bytes) {
  std::erase_if(memory_barriers(), [&](const auto& entry) { return entry.first - begin < bytes; });
}

}  // namespace gt::emulator
