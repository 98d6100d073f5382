// Vector clocks: which events of other threads a thread has been told of, directly or not.
// Flanagan and Freund, "FastTrack: efficient and precise dynamic race detection" (PLDI 2009).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gt::emulator {

// One event: the time of one thread. Times start at 1; 0 is before everything.
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

  void tick(std::uint32_t thread) {
    if (thread >= times_.size()) {
      times_.resize(thread + 1, 0);
    }
    ++times_[thread];
  }

  void join(const Clock& other) {
    if (other.times_.size() > times_.size()) {
      times_.resize(other.times_.size(), 0);
    }
    for (std::size_t i = 0; i < other.times_.size(); ++i) {
      times_[i] = std::max(times_[i], other.times_[i]);
    }
  }

 private:
  std::vector<std::uint32_t> times_;
};

}  // namespace gt::emulator
