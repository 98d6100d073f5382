// A pool of persistent threads: a call hands them numbered tasks and works beside them.
#pragma once

#include <cstdint>
#include <type_traits>

namespace gt {

// Calls work(context, task) for each task in [0, tasks), on at most `threads` threads, the caller's
// among them; returns when all have run. Tasks run in any order and on any thread, so the result
// must not depend on it. Where the threads are busy with another call, or the caller is one of
// them, the caller runs all tasks.
void run_tasks(std::int64_t tasks, int threads, void (*work)(void* context, std::int64_t task),
               void* context);

// Runs a function object work(task), which must not throw, in the same way.
template <class Work>
void run_tasks(std::int64_t tasks, int threads, const Work& work) {
  if (threads <= 1 || tasks <= 1) {
    for (std::int64_t task = 0; task < tasks; ++task) {
      work(task);
    }
    return;
  }
  run_tasks(
      tasks, threads,
      [](void* context, std::int64_t task) { (*static_cast<const Work*>(context))(task); },
      const_cast<void*>(static_cast<const void*>(&work)));
}

}  // namespace gt
