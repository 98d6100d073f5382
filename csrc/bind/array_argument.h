// Python arguments of kernels over arrays: contiguous arrays of float32, and their rows.
#pragma once

#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <optional>
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

template <class Array>
const float* optional_data(const char* op, const char* name, const std::optional<Array>& array,
                           std::size_t expected) {
  if (!array) {
    return nullptr;
  }
  check_count(op, name, array->size(), expected);
  return array->data();
}

// Rows along an array's last dimension; 0 rows where it has no element.
struct Rows {
  std::size_t count, columns;
};

template <class Array>
Rows rows_of(const char* op, const Array& array) {
  if (array.ndim() == 0) {
    throw std::invalid_argument(message(op, ": an array of rows has at least one dimension"));
  }
  const std::size_t columns = array.shape(array.ndim() - 1);
  return {columns == 0 ? 0 : array.size() / columns, columns};
}

}  // namespace gt
