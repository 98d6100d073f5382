// Python arguments of kernels over arrays: contiguous arrays of float32 and of int64.
#pragma once

#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "core/message.h"
#include "core/parallel.h"

namespace gt {

using In = nanobind::ndarray<const float, nanobind::c_contig, nanobind::device::cpu>;
using Out = nanobind::ndarray<float, nanobind::c_contig, nanobind::device::cpu>;
using Indices = nanobind::ndarray<const std::int64_t, nanobind::c_contig, nanobind::device::cpu>;

inline void check_count(const char* op, const char* name, std::size_t count, std::size_t expected) {
  if (count != expected) {
    throw std::invalid_argument(
        message(op, ": ", name, " has ", count, " elements, not ", expected));
  }
}

inline int checked_threads(const char* op, int threads) {
  if (threads < 1 || threads > kThreadsMax) {
    throw std::invalid_argument(
        message(op, ": threads ", threads, " is not in [1, ", kThreadsMax, "]"));
  }
  return threads;
}

}  // namespace gt
