// The threads of one launch, as fibers of one thread of this process under one scheduler: the same
// seed gives the same order. What instructions do is in barriers.cpp, warp.cpp, atomics.cpp,
// copies.cpp; this file knows how threads run, wait and end.
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
constexpr unsigned kNamedBarriers = 16;  // PTX: barrier a is in [0, 15]

struct Block;

struct Copy {  // one cp.async
  std::uintptr_t to;
  std::uintptr_t from;
  std::size_t bytes;
  std::size_t read_bytes;  // the rest is filled with zeros
  std::uintptr_t place;
};

struct Thread {
  enum class State { kReady, kWaiting, kFinished };

  std::uint32_t number;  // in the grid
  std::uint32_t rank;    // in the block
  Block* block;
  Dim3 index;
  State state = State::kReady;
  std::string waits_for;  // for the report of a deadlock
  Clock clock;
  Clock at_fence;  // what a relaxed store publishes
  Clock unfenced;  // what relaxed loads saw: known from the next fence on
  ucontext_t context{};
  char* stack = nullptr;
  std::deque<std::vector<Copy>> copy_groups;  // committed, oldest first
  std::vector<Copy> open_copies;

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

struct Rendezvous {  // lanes of one warp that meet in one instruction
  const char* instruction = "";
  unsigned arrived = 0;
  LaneValues values{};
  Clock clock;
  std::vector<std::pair<Thread*, LaneValues*>> waiting;
};

struct Block {
  std::uint32_t number;
  Dim3 index;
  std::vector<std::unique_ptr<Thread>> threads;
  std::array<Barrier, kNamedBarriers> barriers;
  std::vector<std::map<unsigned, Rendezvous>> meetings;  // of each warp, by mask
  std::vector<WarpBanks> banks;                          // of each warp
  std::map<const void*, std::pair<void*, std::size_t>> shared;
  std::size_t unfinished = 0;
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
  void maybe_yield();                  // at a memory access, by chance
  void wait(const std::string& what);  // until wake
  void wake(Thread& thread) { thread.state = Thread::State::kReady; }
  [[noreturn]] void stop(std::exception_ptr fault);
  std::uint64_t steps() const { return steps_; }

  const Launch launch;
  Statistics statistics;

 private:
  static void entry();
  std::unique_ptr<Thread> make_thread(Block& block, std::uint32_t rank) const;
  void start_block();
  void end_block(std::size_t position);
  Thread* choose();
  [[noreturn]] void report_deadlock();
  std::string waiting_threads() const;

  std::function<void()> kernel_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Block>> resident_;
  std::vector<Thread*> ready_;
  std::uint32_t started_ = 0;
  std::uint32_t blocks_ = 0;
  std::uint64_t steps_ = 0;
  ucontext_t scheduler_{};
  std::exception_ptr fault_;
};

extern Machine* machine;  // of the launch in progress, or nullptr
extern Thread* current;   // the thread that runs, or nullptr on the host

// Stops the launch with a fault of the running thread.
[[noreturn]] void fail(FaultKind kind, const std::string& text);
// An access by the running thread; stops the launch where it is wrong.
const Region& checked_touch(const Touch& touch);
// "block 2, thread 33"
std::string who(const Thread& thread);

}  // namespace gt::emulator
