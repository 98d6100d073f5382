// Waiting threads poll a few times, yielding the processor in between, and then sleep, so that a
// waiting thread keeps no core from one that has work.
#include "core/pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace gt {
namespace {

constexpr int kLooks = 200;  // about 100 us where nobody else wants the core

// Waits until the word is no longer `old`.
void wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t old) {
  for (int look = 0; look < kLooks; ++look) {
    if (word.load(std::memory_order_acquire) != old) {
      return;
    }
    sched_yield();
  }
  word.wait(old, std::memory_order_acquire);
}

class Pool {
 public:
  // Returns false where another call is using the threads.
  bool run(std::int64_t tasks, int threads, void (*work)(void*, std::int64_t), void* context) {
    const std::unique_lock lock(caller_, std::try_to_lock);
    if (!lock.owns_lock()) {
      return false;
    }
    const auto helpers = static_cast<std::uint32_t>(std::min<std::int64_t>(threads, tasks) - 1);
    while (started_ < helpers) {
      std::thread([this, index = started_] { help(index); }).detach();
      ++started_;
    }
    tasks_ = tasks;
    helpers_ = helpers;
    work_ = work;
    context_ = context;
    next_.store(0, std::memory_order_relaxed);
    state_.store(kOpen, std::memory_order_release);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    is_inside = true;
    take_tasks();
    is_inside = false;
    // Helpers that have not started by now are not needed; the others finish the tasks that they
    // took.
    for (std::uint32_t state = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
         state != 0; state = state_.load(std::memory_order_acquire)) {
      wait_while(state_, state);
    }
    return true;
  }

 private:
  static constexpr std::uint32_t kOpen = 1U << 31;  // the other bits count the helpers at work

  void take_tasks() {
    for (std::int64_t task = next_.fetch_add(1, std::memory_order_relaxed); task < tasks_;
         task = next_.fetch_add(1, std::memory_order_relaxed)) {
      work_(context_, task);
    }
  }

  bool enter() {
    std::uint32_t state = state_.load(std::memory_order_relaxed);
    while ((state & kOpen) != 0) {
      if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire)) {
        return true;
      }
    }
    return false;
  }

  void help(std::uint32_t index) {
    is_inside = true;
    std::uint32_t seen = 0;
    for (;;) {
      wait_while(round_, seen);
      seen = round_.load(std::memory_order_acquire);
      if (!enter()) {
        continue;
      }
      if (index < helpers_) {
        take_tasks();
      }
      if (state_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        state_.notify_one();  // the caller waits for the last one
      }
    }
  }

 public:
  static thread_local bool is_inside;

 private:
  std::mutex caller_;
  std::uint32_t started_ = 0;
  std::atomic<std::uint32_t> round_{0};
  std::atomic<std::uint32_t> state_{0};
  std::atomic<std::int64_t> next_{0};
  std::int64_t tasks_ = 0;
  std::uint32_t helpers_ = 0;
  void (*work_)(void*, std::int64_t) = nullptr;
  void* context_ = nullptr;
};

thread_local bool Pool::is_inside = false;

// One for a process: threads do not survive fork, so a child makes its own. Never freed: its
// threads may still wait while the process ends.
std::atomic<Pool*>& current_pool() {
  static std::atomic<Pool*> current{nullptr};
  static const int registered = pthread_atfork(nullptr, nullptr, [] { current = nullptr; });
  static_cast<void>(registered);
  return current;
}

Pool& pool() {
  std::atomic<Pool*>& current = current_pool();
  Pool* found = current.load(std::memory_order_acquire);
  if (found == nullptr) {
    auto* made = new Pool;
    if (current.compare_exchange_strong(found, made)) {
      return *made;
    }
    delete made;  // another thread was first
  }
  return *found;
}

}  // namespace

void run_tasks(std::int64_t tasks, int threads, void (*work)(void*, std::int64_t), void* context) {
  if (!Pool::is_inside && threads > 1 && tasks > 1 && pool().run(tasks, threads, work, context)) {
    return;
  }
  for (std::int64_t task = 0; task < tasks; ++task) {
    work(context, task);
  }
}

}  // namespace gt
