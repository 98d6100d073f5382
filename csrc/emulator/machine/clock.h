// Vector clocks: the events of other threads that happened before a thread's own.
// Flanagan and Freund, "FastTrack: efficient and precise dynamic race detection" (PLDI 2009).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gt::emulator {

// One event: a thread and its time. Times start at 1; 0 is before everything.
struct Epoch {
  std::uint32_t thread = 0;
  std::uint32_t time = 0;
};

class Clock {
 public:
  std::uint32_t time_of(std::uint32_t thread) const {
    return thread < times_.size() ? times_[thread] : 0;
  }
  bool knows(Epoch epoch) const { return epoch.time <= time_of(epoch.thread); }
  // True where the event is ordered before asynchronous operations, by a fence.proxy.async.
  bool knows_fenced(Epoch epoch) const {
    return epoch.time <= (epoch.thread < fenced_.size() ? fenced_[epoch.thread] : 0);
  }

  void tick(std::uint32_t thread) {
    if (thread >= times_.size()) {
      times_.resize(thread + 1, 0);
    }
    ++times_[thread];
  }

  void learn(Epoch epoch) {
    if (epoch.thread >= times_.size()) {
      times_.resize(epoch.thread + 1, 0);
    }
    times_[epoch.thread] = std::max(times_[epoch.thread], epoch.time);
  }

  void join(const Clock& other) {
    raise(times_, other.times_);
    raise(fenced_, other.fenced_);
  }

  // Makes the events known so far visible to the asynchronous proxy.
  void fence() { raise(fenced_, times_); }

  // Keeps the events that both know.
  void meet(const Clock& other) {
    lower(times_, other.times_);
    lower(fenced_, other.fenced_);
  }

 private:
  using Times = std::vector<std::uint32_t>;

  static void raise(Times& times, const Times& others) {
    if (others.size() > times.size()) {
      times.resize(others.size(), 0);
    }
    for (std::size_t i = 0; i < others.size(); ++i) {
      times[i] = std::max(times[i], others[i]);
    }
  }
  static void lower(Times& times, const Times& others) {
    times.resize(std::min(times.size(), others.size()));
    for (std::size_t i = 0; i < times.size(); ++i) {
      times[i] = std::min(times[i], others[i]);
    }
  }

  Times times_;
  Times fenced_;
};

}  // namespace gt::emulator
