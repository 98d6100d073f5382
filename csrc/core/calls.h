// Counts the kernels that have been called in this process, for gt.debug.get_worker_stats().
#pragma once

#include <atomic>
#include <cstdint>

namespace gt {

inline std::atomic<std::uint64_t> kernel_calls{0};

inline void count_call() { kernel_calls.fetch_add(1, std::memory_order_relaxed); }

}  // namespace gt
