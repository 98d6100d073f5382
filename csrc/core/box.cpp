// Checks a box and finds its runs of consecutive global indexes. No data is touched here.
#include "core/box.h"

#include <stdexcept>
#include <utility>

namespace gt {
namespace {

void check_ranks(const char* op, const Shape& shape, const Shape& global_shape,
                 const Shape& start) {
  if (shape.size() > Box::kRankMax) {
    throw std::invalid_argument(
        message(op, ": out has ", shape.size(), " dims, at most ", Box::kRankMax, " are allowed"));
  }
  if (global_shape.size() != shape.size() || start.size() != shape.size()) {
    throw std::invalid_argument(message(op, ": out ", shape, ", global_shape ", global_shape,
                                        " and start ", start, " differ in rank"));
  }
}

void check_inside(const char* op, const Shape& shape, const Shape& global_shape,
                  const Shape& start) {
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const std::int64_t size = global_shape[dim];
    if (size < 0) {
      throw std::invalid_argument(
          message(op, ": global_shape ", global_shape, " is negative in dim ", dim));
    }
    // Written so that no sum can overflow.
    if (start[dim] < 0 || start[dim] > size || shape[dim] > size - start[dim]) {
      throw std::invalid_argument(message(op, ": out ", shape, " at start ", start,
                                          " does not lie in global_shape ", global_shape,
                                          " in dim ", dim));
    }
  }
}

}  // namespace

Box::Box(const char* op, Shape shape, Shape global_shape, Shape start) : shape_(std::move(shape)) {
  check_ranks(op, shape_, global_shape, start);
  check_inside(op, shape_, global_shape, start);
  const std::size_t rank = shape_.size();
  for (const std::int64_t size : shape_) {
    elements_ = size == 0 ? 0 : elements_;
  }
  if (elements_ == 0) {
    return;  // nothing to index; the other sizes may be anything
  }
  global_strides_.assign(rank, 1);
  std::int64_t global_elements = 1;
  bool consecutive = true;
  for (std::size_t dim = rank; dim-- > 0;) {
    global_strides_[dim] = global_elements;
    if (__builtin_mul_overflow(global_elements, global_shape[dim], &global_elements)) {
      throw std::invalid_argument(
          message(op, ": global_shape ", global_shape, " has 2^63 elements or more"));
    }
    elements_ *= shape_[dim];
    corner_index_ += start[dim] * global_strides_[dim];
    if (consecutive) {
      run_elements_ *= shape_[dim];
      outer_dims_ = dim;
    }
    consecutive = consecutive && shape_[dim] == global_shape[dim];
  }
}

std::int64_t Box::run_global_index(std::int64_t run) const {
  std::int64_t index = corner_index_;
  for (std::size_t dim = outer_dims_; dim-- > 0;) {
    const std::int64_t next = run / shape_[dim];
    index += (run - next * shape_[dim]) * global_strides_[dim];
    run = next;
  }
  return index;
}

}  // namespace gt
