#include "emulator/machine/machine.h"

#include <sys/mman.h>

#include <algorithm>

#include "emulator/machine/sync_state.h"

namespace gt::emulator {

Machine* machine = nullptr;
Thread* current = nullptr;

namespace {

constexpr std::size_t kStackBytes = 128 * 1024;
constexpr std::uint64_t kPreemptEvery = 24;    // mean accesses between switches, seeded
constexpr std::uint64_t kArriveEvery = 16;     // mean steps until a copy arrives, seeded
constexpr std::uint64_t kArriveLatest = 4096;  // steps until a copy arrives, unseeded

std::vector<char*>& free_stacks() {
  static std::vector<char*> stacks;
  return stacks;
}

char* take_stack() {
  if (!free_stacks().empty()) {
    char* stack = free_stacks().back();
    free_stacks().pop_back();
    return stack;
  }
  void* mapped = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    throw std::bad_alloc();
  }
  return static_cast<char*>(mapped);
}

Dim3 index_of(std::uint32_t number, const Dim3& extent) {
  return {number % extent.x, number / extent.x % extent.y, number / (extent.x * extent.y)};
}

}  // namespace

Toucher Thread::toucher() const {
  return {{number, clock.time_of(number)}, block->number, block->cluster->number, clock};
}

std::string who(const Thread& thread) {
  return message("block ", thread.block->number, ", thread ", thread.rank);
}

void fail(FaultKind kind, const std::string& text) {
  machine->stop(std::make_exception_ptr(Fault(kind, who(*current) + ": " + text)));
}

const Region& checked_touch(const Touch& touch) {
  const Region* region = nullptr;
  std::exception_ptr fault;
  try {
    region = &memory().touch(touch, current->toucher());
  } catch (...) {
    fault = std::current_exception();
  }
  if (fault) {
    machine->stop(fault);
  }
  return *region;
}

Machine::Machine(const Launch& wanted, std::function<void()> kernel)
    : launch(wanted),
      kernel_(std::move(kernel)),
      random_(wanted.seed),
      blocks_(wanted.grid.count()),
      next_agent_(blocks_ * wanted.block.count()) {
  check_launch();
  machine = this;
}

void Machine::check_launch() const {
  const auto divides = [](unsigned part, unsigned whole) { return part > 0 && whole % part == 0; };
  if (!divides(launch.cluster.x, launch.grid.x) || !divides(launch.cluster.y, launch.grid.y) ||
      !divides(launch.cluster.z, launch.grid.z)) {
    throw Fault(FaultKind::kMisuse, "the grid is not a multiple of the cluster");
  }
  if (launch.registers % 8 != 0 || launch.registers * launch.block.count() > kProcessorRegisters) {
    throw Fault(FaultKind::kMisuse, message(launch.registers, " registers for each of ",
                                            launch.block.count(), " threads"));
  }
}

Machine::~Machine() {
  while (!resident_.empty()) {
    end_block(0);
  }
  current = nullptr;
  machine = nullptr;
}

void Machine::entry() {
  std::exception_ptr fault;
  try {
    machine->kernel_();
  } catch (...) {
    fault = std::current_exception();
  }
  if (fault) {
    machine->stop(fault);
  }
  current->state = Thread::State::kFinished;
  --current->block->unfinished;
  leave_cluster(*current);
  setcontext(&machine->scheduler_);
}

std::unique_ptr<Thread> Machine::make_thread(Block& block, std::uint32_t rank) const {
  auto thread = std::make_unique<Thread>();
  thread->number = block.number * launch.block.count() + rank;
  thread->rank = rank;
  thread->block = &block;
  thread->index = index_of(rank, launch.block);
  thread->clock.tick(thread->number);
  thread->registers = launch.registers != 0
                          ? launch.registers
                          : std::min(255U, kProcessorRegisters / launch.block.count()) / 8 * 8;
  thread->stack = take_stack();
  getcontext(&thread->context);
  thread->context.uc_stack.ss_sp = thread->stack;
  thread->context.uc_stack.ss_size = kStackBytes;
  thread->context.uc_link = nullptr;
  makecontext(&thread->context, entry, 0);
  return thread;
}

void Machine::start_cluster() {
  const Dim3 shape = launch.cluster;
  const Dim3 clusters{launch.grid.x / shape.x, launch.grid.y / shape.y, launch.grid.z / shape.z};
  auto cluster = std::make_unique<Cluster>();
  cluster->number = started_ / shape.count();
  cluster->threads = shape.count() * launch.block.count();
  const Dim3 place = index_of(cluster->number, clusters);
  for (unsigned rank = 0; rank < shape.count(); ++rank) {
    const Dim3 in = index_of(rank, shape);
    start_block(*cluster,
                {place.x * shape.x + in.x, place.y * shape.y + in.y, place.z * shape.z + in.z});
  }
  clusters_.push_back(std::move(cluster));
}

void Machine::start_block(Cluster& cluster, const Dim3& index) {
  auto block = std::make_unique<Block>();
  ++started_;
  block->number = index.x + launch.grid.x * (index.y + launch.grid.y * index.z);
  block->index = index;
  block->cluster = &cluster;
  block->rank = cluster.running++;
  cluster.blocks.push_back(block.get());
  const unsigned threads = launch.block.count();
  block->unfinished = threads;
  const unsigned warps = (threads + kWarpThreads - 1) / kWarpThreads;
  block->meetings.resize(warps);
  block->banks.resize(warps);
  block->warpgroups.resize(threads / kWarpgroupThreads);
  for (unsigned rank = 0; rank < threads; ++rank) {
    block->threads.push_back(make_thread(*block, rank));
  }
  resident_.push_back(std::move(block));
}

// The memory stays mapped: others of the cluster may still access it by mistake, which is reported.
void Machine::free_shared(Block& block) {
  for (const auto& [key, storage] : block.shared) {
    const auto begin = reinterpret_cast<std::uintptr_t>(storage.first);
    forget_barriers(begin, storage.second);
    memory().retire(storage.first);
    block.cluster->storage.push_back(storage.first);
  }
  if (--block.cluster->running > 0) {
    return;
  }
  for (void* storage : block.cluster->storage) {
    memory().remove(storage);
    ::operator delete(storage, std::align_val_t{1024});
  }
  std::erase_if(clusters_, [&](const auto& each) { return each.get() == block.cluster; });
}

void Machine::end_block(std::size_t position) {
  Block& block = *resident_[position];
  for (WarpBanks& banks : block.banks) {
    banks.flush(statistics.conflict_places);
  }
  free_shared(block);
  for (const auto& thread : block.threads) {
    free_stacks().push_back(thread->stack);
  }
  resident_.erase(resident_.begin() + static_cast<std::ptrdiff_t>(position));
}

// Completes one of the copies in flight; without a seed the oldest.
void Machine::let_arrive() {
  const std::size_t which = launch.seed == 0 ? 0 : random_() % arrivals_.size();
  const Arrival arrival = std::move(arrivals_[which]);
  arrivals_.erase(arrivals_.begin() + static_cast<std::ptrdiff_t>(which));
  if (memory().find(arrival.target) == nullptr || memory().find(arrival.target)->is_gone) {
    throw Fault(FaultKind::kOutOfBounds,
                message("a copy of ", arrival.bytes, " bytes arrives in the shared memory of a ",
                        "block that has ended"));
  }
  arrival.arrive();
}

Thread* Machine::choose() {
  ready_.clear();
  for (const auto& block : resident_) {
    for (const auto& thread : block->threads) {
      if (thread->state == Thread::State::kReady) {
        ready_.push_back(thread.get());
      }
    }
  }
  if (ready_.empty()) {
    return nullptr;
  }
  // Without a seed threads run in order: the next one after the last, so that polling threads let
  // the others run.
  if (launch.seed == 0) {
    for (Thread* thread : ready_) {
      if (current != nullptr && thread->number > current->number) {
        return thread;
      }
    }
    return ready_.front();
  }
  return ready_[random_() % ready_.size()];
}

Statistics Machine::run() {
  const unsigned limit = launch.is_cooperative ? blocks_ : launch.resident_blocks;
  while (true) {
    while (started_ < blocks_ &&
           (resident_.empty() || resident_.size() + launch.cluster.count() <= limit)) {
      start_cluster();
    }
    Thread* next = choose();
    const std::uint64_t every = launch.seed == 0 ? kArriveLatest : kArriveEvery;
    if (!arrivals_.empty() && (next == nullptr || (steps_ + 1) % every == 0)) {
      let_arrive();
      next = choose();
    }
    if ((next == nullptr && arrivals_.empty()) || steps_ > launch.steps_max) {
      report_deadlock();
    }
    if (next == nullptr) {
      continue;
    }
    ++steps_;
    current = next;
    swapcontext(&scheduler_, &next->context);
    if (fault_) {
      std::rethrow_exception(fault_);
    }
    if (next->state == Thread::State::kFinished && next->block->unfinished == 0) {
      const auto block = std::find_if(resident_.begin(), resident_.end(),
                                      [&](const auto& each) { return each.get() == next->block; });
      current = nullptr;
      end_block(static_cast<std::size_t>(block - resident_.begin()));
      if (resident_.empty() && started_ == blocks_) {
        break;
      }
    }
  }
  statistics.steps = steps_;
  for (const auto& [place, conflicts] : statistics.conflict_places) {
    statistics.bank_conflicts += conflicts;
  }
  return statistics;
}

void Machine::yield() { swapcontext(&current->context, &scheduler_); }

void Machine::maybe_yield() {
  if (launch.seed != 0 && random_() % kPreemptEvery == 0) {
    yield();
  }
}

void Machine::wait(std::function<std::string()> what) {
  Thread& thread = *current;
  thread.state = Thread::State::kWaiting;
  thread.waits_for = std::move(what);
  yield();
}

void Machine::stop(std::exception_ptr fault) {
  fault_ = fault;
  setcontext(&scheduler_);
  __builtin_unreachable();
}

std::string Machine::waiting_threads() const {
  std::ostringstream text;
  for (const auto& block : resident_) {
    std::map<std::string, std::vector<std::uint32_t>> groups;
    for (const auto& thread : block->threads) {
      const bool is_waiting = thread->state == Thread::State::kWaiting;
      const bool is_ready = thread->state == Thread::State::kReady;
      const std::string what =
          is_waiting ? "wait for " + thread->waits_for() : (is_ready ? "poll" : "have finished");
      groups[what].push_back(thread->rank);
    }
    for (const auto& [what, ranks] : groups) {
      text << "\n  block " << block->number << ", threads";
      for (std::size_t i = 0; i < ranks.size();) {
        std::size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
          ++last;
        }
        text << ' ' << ranks[i];
        if (last > i) {
          text << '-' << ranks[last];
        }
        i = last + 1;
      }
      text << ' ' << what;
    }
  }
  return text.str();
}

void Machine::report_deadlock() {
  const char* why =
      steps_ > launch.steps_max ? "no end within the limit of steps" : "all threads wait";
  throw Fault(FaultKind::kDeadlock, message(why, " (seed ", launch.seed, ")", waiting_threads()));
}

Statistics launch(const Launch& wanted, const std::function<void()>& kernel) {
  memory().forget_touches();
  forget_sync_state();
  Machine run(wanted, kernel);
  return run.run();
}

}  // namespace gt::emulator
