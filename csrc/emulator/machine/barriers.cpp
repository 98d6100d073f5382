// Indexes, shared memory, and the barriers of a block. PTX ISA 9.7.13.1 (bar), 9.7.13.15
// (mbarrier).
#include <cstring>
#include <new>
#include <unordered_map>

#include "emulator/machine/instructions.h"
#include "emulator/machine/machine.h"
#include "emulator/machine/sync_state.h"

namespace gt::emulator {
namespace {

struct MemoryBarrier {
  unsigned arrivals = 0;  // of a phase
  unsigned pending = 0;
  std::int64_t bytes = 0;  // expected and not yet complete
  std::uint64_t phase = 0;
  Clock gathering;
  Clock completed;
  std::vector<Thread*> waiting;
};

std::unordered_map<std::uintptr_t, MemoryBarrier>& memory_barriers() {
  static std::unordered_map<std::uintptr_t, MemoryBarrier> all;
  return all;
}

void release(std::vector<Thread*>& waiting, const Clock& clock) {
  for (Thread* thread : waiting) {
    thread->clock.join(clock);
    thread->clock.tick(thread->number);
    machine->wake(*thread);
  }
  waiting.clear();
}

Barrier& checked_barrier(unsigned number, unsigned threads) {
  if (number >= kNamedBarriers) {
    fail(FaultKind::kMisuse, message("barrier ", number, " is not in [0, 15]"));
  }
  if (threads % kWarpThreads != 0 && threads != machine->launch.block.count()) {
    fail(FaultKind::kMisuse,
         message("barrier ", number, ": ", threads, " threads are not a multiple of the warp"));
  }
  Barrier& barrier = current->block->barriers[number];
  if (barrier.arrived > 0 && barrier.expected != threads) {
    fail(FaultKind::kMisuse, message("barrier ", number, " is used with ", threads,
                                     " threads while it gathers ", barrier.expected));
  }
  barrier.expected = threads;
  return barrier;
}

// Whether the arrival was the last one.
bool arrive(Barrier& barrier) {
  barrier.clock.join(current->clock);
  current->clock.tick(current->number);
  if (++barrier.arrived < barrier.expected) {
    return false;
  }
  const Clock clock = barrier.clock;
  current->clock.join(clock);
  release(barrier.waiting, clock);
  barrier = {};
  return true;
}

MemoryBarrier& checked_memory_barrier(std::uint64_t* barrier) {
  const auto address = reinterpret_cast<std::uintptr_t>(barrier);
  checked_touch({address, sizeof(*barrier), Access::kRead, Scope::kBlock, 0});
  const auto found = memory_barriers().find(address);
  if (found == memory_barriers().end()) {
    fail(FaultKind::kMisuse, "the mbarrier was not initialized");
  }
  return found->second;
}

void complete_phase(MemoryBarrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes != 0) {
    return;
  }
  ++barrier.phase;
  barrier.pending = barrier.arrivals;
  barrier.completed = barrier.gathering;
  release(barrier.waiting, barrier.completed);
}

}  // namespace

Dim3 thread_index() { return current->index; }
Dim3 block_index() { return current->block->index; }
Dim3 block_extent() { return machine->launch.block; }
Dim3 grid_extent() { return machine->launch.grid; }

void* shared_storage(const void* key, std::size_t bytes) {
  Block& block = *current->block;
  const auto found = block.shared.find(key);
  if (found != block.shared.end()) {
    return found->second.first;
  }
  void* storage = ::operator new(bytes, std::align_val_t{1024});
  std::memset(storage, 0xA5, bytes);
  block.shared[key] = {storage, bytes};
  memory().add(message("shared memory of block ", block.number), storage, bytes, false,
               block.number);
  return storage;
}

void* dynamic_shared_storage() {
  static const char key = 0;
  if (machine->launch.shared_bytes == 0) {
    fail(FaultKind::kMisuse, "the launch has no dynamic shared memory");
  }
  return shared_storage(&key, machine->launch.shared_bytes);
}

void sync_threads() {
  Block& block = *current->block;
  const unsigned threads = machine->launch.block.count();
  if (block.barriers[0].arrived + 1 == threads) {
    for (WarpBanks& banks : block.banks) {
      banks.flush(machine->statistics.conflict_places);
    }
  }
  barrier_sync(0, threads);
}

void barrier_sync(unsigned number, unsigned threads) {
  Barrier& barrier = checked_barrier(number, threads);
  if (arrive(barrier)) {
    return;
  }
  barrier.waiting.push_back(current);
  machine->wait(message("barrier ", number, " of ", threads, " threads"));
}

void barrier_arrive(unsigned number, unsigned threads) { arrive(checked_barrier(number, threads)); }

void mbarrier_init(std::uint64_t* barrier, unsigned arrivals) {
  const auto address = reinterpret_cast<std::uintptr_t>(barrier);
  checked_touch({address, sizeof(*barrier), Access::kWrite, Scope::kPlain, 0});
  if (arrivals == 0 || arrivals >= (1U << 20)) {
    fail(FaultKind::kMisuse, message("mbarrier.init: count ", arrivals, " is not in [1, 2^20)"));
  }
  MemoryBarrier fresh;
  fresh.arrivals = arrivals;
  fresh.pending = arrivals;
  memory_barriers()[address] = fresh;
}

void mbarrier_arrive(std::uint64_t* barrier, unsigned count, std::uint32_t expected_bytes) {
  MemoryBarrier& state = checked_memory_barrier(barrier);
  if (count > state.pending) {
    fail(FaultKind::kMisuse, message("mbarrier phase ", state.phase, ": ", count,
                                     " arrivals where ", state.pending, " are pending"));
  }
  state.bytes += expected_bytes;
  state.gathering.join(current->clock);
  current->clock.tick(current->number);
  state.pending -= count;
  complete_phase(state);
}

void mbarrier_complete_bytes(std::uint64_t* barrier, std::uint32_t bytes) {
  MemoryBarrier& state = checked_memory_barrier(barrier);
  state.bytes -= bytes;
  state.gathering.join(current->clock);
  current->clock.tick(current->number);
  complete_phase(state);
}

bool mbarrier_test_wait(std::uint64_t* barrier, unsigned parity) {
  MemoryBarrier& state = checked_memory_barrier(barrier);
  machine->yield();
  if (state.phase % 2 == parity) {
    return false;
  }
  current->clock.join(state.completed);
  return true;
}

void mbarrier_wait(std::uint64_t* barrier, unsigned parity) {
  MemoryBarrier& state = checked_memory_barrier(barrier);
  if (state.phase % 2 != parity) {
    current->clock.join(state.completed);
    return;
  }
  const Region& region = *memory().find(reinterpret_cast<std::uintptr_t>(barrier));
  state.waiting.push_back(current);
  machine->wait(message("the mbarrier at ", region.name, " + ",
                        reinterpret_cast<std::uintptr_t>(barrier) - region.begin, ", parity ",
                        parity, " (it is in phase ", state.phase, ", ", state.pending, " of ",
                        state.arrivals, " arrivals and ", state.bytes, " bytes pending)"));
}

void forget_sync_state() {
  memory_barriers().clear();
  forget_published();
}

void forget_barriers(std::uintptr_t begin, std::size_t bytes) {
  std::erase_if(memory_barriers(), [&](const auto& entry) { return entry.first - begin < bytes; });
}

void trap(const char* text) { fail(FaultKind::kMisuse, text); }

}  // namespace gt::emulator
