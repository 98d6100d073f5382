// Splits a range of elements over threads. The result of the work must not depend on the split.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace gt {

constexpr int kThreadsMax = 256;  // above the cores of any host; bounds a wrong argument

// Starting a thread costs about 20 us, as much as filling this many elements.
constexpr std::int64_t kElementsPerThreadMin = 64 * 1024;

// Calls work(begin, end) for parts of [0, elements), on at most `threads` threads, the caller's
// among them. Threads start and end with the call: a pool would not survive fork.
template <class Work>
void in_parallel(std::int64_t elements, int threads, const Work& work) {
  const auto parts = std::clamp<std::int64_t>(elements / kElementsPerThreadMin, 1, threads);
  const auto edge = [&](std::int64_t part) {
    return elements / parts * part + std::min(part, elements % parts);
  };
  std::vector<std::jthread> others;
  others.reserve(static_cast<std::size_t>(parts - 1));
  for (std::int64_t part = 1; part < parts; ++part) {
    others.emplace_back([&, part] { work(edge(part), edge(part + 1)); });
  }
  work(edge(0), edge(1));
}  // joins

}  // namespace gt
