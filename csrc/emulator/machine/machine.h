// The threads of one launch, as fibers of one operating-system thread under one scheduler: equal
// seeds give equal orders. Instructions are in barriers.cpp, mbarriers.cpp, clusters.cpp, warp.cpp,
// atomics.cpp, copies.cpp, tensor_copies.cpp, matrices.cpp, warpgroups.cpp; this file defines how
// threads run, wait and end.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/message.h"
#include "emulator/machine/banks.h"
#include "emulator/machine/clock.h"
#include "emulator/machine/fault.h"
#include "emulator/machine/launch.h"
#include "emulator/machine/memory.h"

namespace gt::emulator {

constexpr unsigned kWarpThreads = 32;
constexpr unsigned kNamedBarriers = 16;  // PTX: barrier numbers are in [0, 15]

constexpr unsigned kWarpgroupThreads = 128;
constexpr unsigned kProcessorRegisters = 65536;  // of a multiprocessor of sm_90

struct Block;
struct Cluster;

struct Copy {  // one cp.async
  std::uintptr_t to;
  std::uintptr_t from;
  std::size_t bytes;
  std::size_t read_bytes;  // the rest is filled with zeros
  std::uintptr_t place;
};

// Clocks of memory order within a block, and beyond it.
struct ByScope {
  Clock own;
  Clock far;
};

// A thread's registers that receive the sums of wgmma.mma_async: an array on its stack.
struct Sums {
  std::uintptr_t begin;
  std::size_t bytes;
  std::uint64_t last_group;  // the newest group that writes them
};

struct Thread {
  enum class State { kReady, kWaiting, kFinished };

  std::uint32_t number;  // index in the grid
  std::uint32_t rank;    // index in the block
  Block* block;
  Dim3 index;
  State state = State::kReady;
  std::function<std::string()> waits_for;  // for the report of a deadlock
  Clock clock;
  ByScope at_fence;             // clock that a relaxed store publishes
  ByScope unfenced;             // clock seen by relaxed loads: known from the next fence on
  std::uint64_t time_read = 0;  // step of the scheduler at the last read of the time
  ucontext_t context{};
  char* stack = nullptr;
  std::deque<std::vector<Copy>> copy_groups;  // committed, oldest first
  std::vector<Copy> open_copies;
  std::vector<Sums> sums;
  std::uint64_t groups_committed = 0;  // groups of wgmma
  std::uint64_t groups_complete = 0;   // groups that this thread has waited for
  bool has_register_fence = false;     // a wgmma.fence since the last access to the sums
  unsigned registers = 0;
  bool is_at_cluster_barrier = false;
  std::uint64_t cluster_phase = 0;  // phase of barrier.cluster at its arrival

  unsigned lane() const { return rank % kWarpThreads; }
  Toucher toucher() const;
};

struct Barrier {  // bar.sync and bar.arrive
  unsigned arrived = 0;
  unsigned expected = 0;
  Clock clock;
  std::vector<Thread*> waiting;
};

using LaneValues = std::array<std::uint64_t, kWarpThreads>;

struct Rendezvous {  // lanes of one warp at a common instruction
  const char* instruction = "";
  unsigned arrived = 0;
  LaneValues values{};
  Clock clock;
  std::vector<std::pair<Thread*, LaneValues*>> waiting;
};

// One wgmma.mma_async of four warps.
struct MatrixOperand {
  std::uint64_t descriptor;
  bool is_turned;  // MN-major
};
using MatrixRegisters = std::array<std::uint32_t, 4>;
struct WarpgroupProduct {
  std::uint64_t group;
  unsigned columns;
  MatrixOperand a, b;
  bool is_a_in_registers;  // then rows are those of each thread
  bool is_bfloat16;
  bool adds;
  std::array<float*, kWarpgroupThreads> sums;
  std::array<MatrixRegisters, kWarpgroupThreads> rows;
};

struct Warpgroup {
  std::uint32_t agent = 0;  // its time in clocks is the number of complete groups
  const char* instruction = "";
  unsigned arrived = 0;
  Clock clock;  // joined clocks of all arrivals
  WarpgroupProduct gathering{};
  std::vector<Thread*> waiting;
  std::deque<WarpgroupProduct> products;  // in flight, oldest first
};

struct Block {
  std::uint32_t number;
  Dim3 index;
  Cluster* cluster = nullptr;
  unsigned rank = 0;            // in the cluster
  unsigned free_registers = 0;  // released by setmaxnreg.dec
  std::vector<Warpgroup> warpgroups;
  std::vector<Thread*> waiting_for_registers;
  std::vector<std::unique_ptr<Thread>> threads;
  std::array<Barrier, kNamedBarriers> barriers;
  std::vector<std::map<unsigned, Rendezvous>> meetings;  // of each warp, by mask
  std::vector<WarpBanks> banks;                          // of each warp
  std::map<const void*, std::pair<void*, std::size_t>> shared;
  std::size_t unfinished = 0;
};

struct Cluster {
  std::uint32_t number;
  std::vector<Block*> blocks;  // by rank
  unsigned running = 0;        // blocks that have not ended
  unsigned threads = 0;        // threads that have not ended
  unsigned arrived = 0;        // threads at barrier.cluster
  std::uint64_t phase = 0;
  Clock gathering, completed;
  std::vector<Thread*> waiting;
  std::vector<void*> storage;  // shared memory of blocks that have ended
};

// Effect of an asynchronous copy at its arrival.
struct Arrival {
  std::uintptr_t target;
  std::size_t bytes;
  std::function<void()> arrive;
};

class Machine {
 public:
  Machine(const Launch& launch, std::function<void()> kernel);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  Statistics run();

  // Called from a thread of the kernel.
  void yield();
  void maybe_yield();  // at random, at a memory access
  // Waits until wake(). `what` gives the text for the report of a deadlock.
  void wait(std::function<std::string()> what);
  void wake(Thread& thread) { thread.state = Thread::State::kReady; }
  [[noreturn]] void stop(std::exception_ptr fault);
  std::uint64_t steps() const { return steps_; }
  // Returns a number for an asynchronous operation, which identifies it in clocks.
  std::uint32_t add_agent() { return next_agent_++; }
  void add_arrival(Arrival arrival) { arrivals_.push_back(std::move(arrival)); }

  const Launch launch;
  Statistics statistics;

 private:
  static void entry();
  std::unique_ptr<Thread> make_thread(Block& block, std::uint32_t rank) const;
  void check_launch() const;
  void start_cluster();
  void start_block(Cluster& cluster, const Dim3& index);
  void end_block(std::size_t position);
  void free_shared(Block& block);
  void let_arrive();
  Thread* choose();
  [[noreturn]] void report_deadlock();
  std::string waiting_threads() const;

  std::function<void()> kernel_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Block>> resident_;
  std::vector<std::unique_ptr<Cluster>> clusters_;
  std::vector<Arrival> arrivals_;
  std::vector<Thread*> ready_;
  std::uint32_t started_ = 0;  // blocks started
  std::uint32_t blocks_ = 0;
  std::uint32_t next_agent_ = 0;
  std::uint64_t steps_ = 0;
  ucontext_t scheduler_{};
  std::exception_ptr fault_;
};

extern Machine* machine;  // of the launch in progress, or nullptr
extern Thread* current;   // the thread that runs, or nullptr on the host

// Stops the launch with a fault of the running thread.
[[noreturn]] void fail(FaultKind kind, const std::string& text);
// Records an access by the running thread; stops the launch with a fault where it is wrong.
const Region& checked_touch(const Touch& touch);
// Text such as "block 2, thread 33".
std::string who(const Thread& thread);
// Called at the end of a thread: barrier.cluster no longer waits for it.
void leave_cluster(Thread& thread);
// Checks an access to a thread's own stack: sums of a wgmma in flight must not be touched.
void touch_sums(std::uintptr_t address, std::size_t bytes, std::uintptr_t place);

}  // namespace gt::emulator
