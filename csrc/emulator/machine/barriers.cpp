// Indexes, shared memory, and the barriers of a block. PTX ISA 9.7.13.1 (bar).
#include <cstring>
#include <new>

#include "emulator/machine/instructions.h"
#include "emulator/machine/machine.h"
#include "emulator/machine/sync_state.h"

namespace gt::emulator {
namespace {

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

// Returns true for the last arrival.
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

}  // namespace

void release(std::vector<Thread*>& waiting, const Clock& clock) {
  for (Thread* thread : waiting) {
    thread->clock.join(clock);
    thread->clock.tick(thread->number);
    machine->wake(*thread);
  }
  waiting.clear();
}

Dim3 thread_index() { return current->index; }
Dim3 block_index() { return current->block->index; }
Dim3 block_extent() { return machine->launch.block; }
Dim3 grid_extent() { return machine->launch.grid; }

namespace {

void* storage_of(Block& block, const void* key, std::size_t bytes) {
  const auto found = block.shared.find(key);
  if (found != block.shared.end()) {
    return found->second.first;
  }
  void* storage = ::operator new(bytes, std::align_val_t{1024});
  std::memset(storage, 0xA5, bytes);
  block.shared[key] = {storage, bytes};
  memory().add(message("shared memory of block ", block.number), storage, bytes, false,
               {block.number, block.cluster->number});
  return storage;
}

}  // namespace

void* shared_storage(const void* key, std::size_t bytes) {
  return storage_of(*current->block, key, bytes);
}

void* dynamic_shared_storage() {
  static const char key = 0;
  if (machine->launch.shared_bytes == 0) {
    fail(FaultKind::kMisuse, "the launch has no dynamic shared memory");
  }
  return shared_storage(&key, machine->launch.shared_bytes);
}

void* shared_of_rank(const void* pointer, unsigned rank) {
  Cluster& cluster = *current->block->cluster;
  if (rank >= cluster.blocks.size()) {
    fail(FaultKind::kMisuse,
         message("mapa: rank ", rank, " in a cluster of ", cluster.blocks.size(), " blocks"));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  for (const auto& [key, storage] : current->block->shared) {
    const std::uintptr_t offset = address - reinterpret_cast<std::uintptr_t>(storage.first);
    if (offset < storage.second) {
      void* other = storage_of(*cluster.blocks[rank], key, storage.second);
      return static_cast<unsigned char*>(other) + offset;
    }
  }
  fail(FaultKind::kMisuse, "mapa: the address is not in this block's shared memory");
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
  machine->wait([=] { return message("barrier ", number, " of ", threads, " threads"); });
}

void barrier_arrive(unsigned number, unsigned threads) { arrive(checked_barrier(number, threads)); }

void trap(const char* text) { fail(FaultKind::kMisuse, text); }

}  // namespace gt::emulator
