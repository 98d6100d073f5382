// A box of a global tensor: the shard that one worker holds. Knows indexes only, no data and no
// dtype.
#pragma once

#include <cstdint>

#include "core/message.h"

namespace gt {

class Box {
 public:
  static constexpr std::size_t kRankMax = 64;  // as many as numpy and torch take

  // Args: op, for messages; shape, the box's own; start, its corner in global_shape.
  // Throws std::invalid_argument where the box does not lie in global_shape, or where the global
  // tensor has 2^63 elements or more.
  Box(const char* op, Shape shape, Shape global_shape, Shape start);

  std::int64_t elements() const { return elements_; }
  // Meaningful for a box with elements: the global index of its first element, the length of a run
  // of elements without a gap (1 at least), and the number of dims that count such runs.
  std::int64_t corner_index() const { return corner_index_; }
  std::int64_t run_elements() const { return run_elements_; }
  std::size_t outer_dims() const { return outer_dims_; }
  std::int64_t size(std::size_t dim) const { return shape_[dim]; }
  std::int64_t global_stride(std::size_t dim) const { return global_strides_[dim]; }

  // Calls visit(local, global, count) for each run of the local elements [begin, end) whose
  // global indexes are consecutive, in local order.
  template <class Visit>
  void visit_runs(std::int64_t begin, std::int64_t end, Visit visit) const {
    for (std::int64_t local = begin; local < end;) {
      const std::int64_t run = local / run_elements_;
      const std::int64_t within = local - run * run_elements_;
      const std::int64_t left = run_elements_ - within;
      const std::int64_t count = left < end - local ? left : end - local;
      visit(local, run_global_index(run) + within, count);
      local += count;
    }
  }

 private:
  // Global index of the first element of a run.
  std::int64_t run_global_index(std::int64_t run) const;

  Shape shape_;
  Shape global_strides_;
  std::int64_t corner_index_ = 0;  // global index of the box's first element
  std::int64_t elements_ = 1;
  std::int64_t run_elements_ =
      1;                        // consecutive elements: the trailing dims, up to the first cut one
  std::size_t outer_dims_ = 0;  // dims that count runs
};

}  // namespace gt
