// Clusters of blocks (PTX ISA, barrier.cluster), and setmaxnreg, which moves registers within a
// block.
#include "emulator/machine/instructions.h"
#include "emulator/machine/sync_state.h"

namespace gt::emulator {
namespace {

void complete_phase(Cluster& cluster) {
  if (cluster.arrived < cluster.threads || cluster.arrived == 0) {
    return;
  }
  cluster.arrived = 0;
  ++cluster.phase;
  cluster.completed = cluster.gathering;
  release(cluster.waiting, cluster.completed);
}

}  // namespace

unsigned cluster_rank() { return current->block->rank; }
unsigned cluster_blocks() { return static_cast<unsigned>(current->block->cluster->blocks.size()); }

void cluster_arrive() {
  Cluster& cluster = *current->block->cluster;
  if (current->is_at_cluster_barrier) {
    fail(FaultKind::kMisuse, "barrier.cluster.arrive twice without a wait between");
  }
  current->is_at_cluster_barrier = true;
  current->cluster_phase = cluster.phase;
  cluster.gathering.join(current->clock);
  current->clock.tick(current->number);
  ++cluster.arrived;
  complete_phase(cluster);
}

void cluster_wait() {
  Cluster& cluster = *current->block->cluster;
  if (!current->is_at_cluster_barrier) {
    fail(FaultKind::kMisuse, "barrier.cluster.wait without an arrive before it");
  }
  current->is_at_cluster_barrier = false;
  if (cluster.phase != current->cluster_phase) {
    current->clock.join(cluster.completed);
    return;
  }
  cluster.waiting.push_back(current);
  machine->wait([&cluster] {
    return message("barrier.cluster, where ", cluster.arrived, " of ", cluster.threads,
                   " threads have arrived");
  });
}

void leave_cluster(Thread& thread) {
  Cluster& cluster = *thread.block->cluster;
  --cluster.threads;
  if (thread.is_at_cluster_barrier && thread.cluster_phase == cluster.phase) {
    --cluster.arrived;
  }
  complete_phase(cluster);
}

// PTX ISA, setmaxnreg: registers released by .dec are available to an .inc of the same block, which
// waits for them. Each warp releases and requests for itself.
void change_registers(unsigned count, bool is_more) {
  const char* const name = is_more ? "setmaxnreg.inc" : "setmaxnreg.dec";
  if (count % 8 != 0 || count < 24 || count > 256) {
    fail(FaultKind::kMisuse,
         message(name, " ", count, ": a multiple of 8 from 24 to 256 is allowed"));
  }
  Block& block = *current->block;
  const WarpValues others = warp_exchange(name, 0xFFFFFFFFU, count);
  if (is_more ? count < current->registers : count > current->registers) {
    fail(FaultKind::kMisuse,
         message(name, " ", count, " where a thread has ", current->registers, " registers"));
  }
  if (others[0] != count) {
    fail(FaultKind::kMisuse, message(name, " ", count, " and ", others[0], " in one warp"));
  }
  const unsigned difference = is_more ? count - current->registers : current->registers - count;
  if (!is_more) {
    block.free_registers += difference;
    for (Thread* thread : block.waiting_for_registers) {
      machine->wake(*thread);
    }
    block.waiting_for_registers.clear();
  }
  while (is_more && block.free_registers < difference) {
    block.waiting_for_registers.push_back(current);
    machine->wait([&block, name, count] {
      return message(name, " ", count, " with ", block.free_registers, " registers free");
    });
  }
  if (is_more) {
    block.free_registers -= difference;
  }
  current->registers = count;
}

}  // namespace gt::emulator
