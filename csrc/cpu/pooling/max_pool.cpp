#include "cpu/pooling/max_pool.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/parallel.h"
#include "core/pool.h"

namespace gt {
namespace {

// Elements in one task, which takes about 20 us.
constexpr std::int64_t kElementsPerTask = 32 * 1024;

struct Picture {
  std::int64_t height, width, out_height, out_width;
};

// Updates `best` and `where` of outputs [0, count) with one kernel position of one row. Elements
// are `stride` apart from `row` on, and `at` is the first one's index in the picture. kStride: the
// stride at compile time, or 0.
template <int kStride>
void take_larger(const float* row, std::int64_t stride, std::int32_t at, std::int64_t count,
                 float* best, std::int32_t* where) {
  const std::int64_t step = kStride == 0 ? stride : kStride;
  for (std::int64_t o = 0; o < count; ++o) {
    const float value = row[o * step];
    const bool is_taken = (value > best[o]) | (value != value);
    best[o] = is_taken ? value : best[o];
    where[o] = is_taken ? at + static_cast<std::int32_t>(o * step) : where[o];
  }
}

using Take = void (*)(const float*, std::int64_t, std::int32_t, std::int64_t, float*,
                      std::int32_t*);

// Places [begin, end) for which place * stride + offset is in [0, size).
struct Range {
  std::int64_t begin, end;
};

Range inside(std::int64_t offset, std::int64_t stride, std::int64_t size, std::int64_t places) {
  const std::int64_t begin = offset < 0 ? (-offset + stride - 1) / stride : 0;
  const std::int64_t end = size - 1 < offset ? 0 : (size - 1 - offset) / stride + 1;
  return {begin, std::min(end, places)};
}

// Column ranges that all rows share.
struct Columns {
  std::vector<Range> ranges;        // per kernel position: outputs for which it is inside
  std::vector<std::int64_t> first;  // per kernel position: column at its range's begin
  std::vector<std::int32_t> start;  // per output: its window's first column
};

Columns columns_of(const Window& window, const Picture& size) {
  Columns columns;
  for (std::int64_t k = 0; k < window.size; ++k) {
    const std::int64_t offset = k * window.dilation - window.padding;
    const Range range = inside(offset, window.stride, size.width, size.out_width);
    columns.ranges.push_back(range);
    columns.first.push_back(range.begin * window.stride + offset);
  }
  for (std::int64_t place = 0; place < size.out_width; ++place) {
    columns.start.push_back(static_cast<std::int32_t>(window.first(place)));
  }
  return columns;
}

void one_row(const MaxPoolCall& call, const Picture& size, const Columns& columns,
             const float* picture, std::int64_t place, Take take, float* best,
             std::int32_t* where) {
  const std::int64_t top = call.rows.first(place);
  const auto above = static_cast<std::int32_t>(top * size.width);
  for (std::int64_t o = 0; o < size.out_width; ++o) {
    best[o] = -std::numeric_limits<float>::infinity();
    where[o] = above + columns.start[static_cast<std::size_t>(o)];
  }
  const std::int64_t start = place * call.rows.stride - call.rows.padding;
  const std::int64_t bottom =
      std::min(start + (call.rows.size - 1) * call.rows.dilation + 1, size.height);
  for (std::int64_t i = top; i < bottom; i += call.rows.dilation) {
    for (std::size_t k = 0; k < columns.ranges.size(); ++k) {
      const Range range = columns.ranges[k];
      const std::int64_t at = i * size.width + columns.first[k];
      if (range.begin < range.end) {
        take(picture + at, call.columns.stride, static_cast<std::int32_t>(at),
             range.end - range.begin, best + range.begin, where + range.begin);
      }
    }
  }
}

void check_window(const Window& window, std::int64_t size, std::int64_t places) {
  const bool fits = window.size >= 1 && window.stride >= 1 && window.dilation >= 1 &&
                    window.padding >= 0 && 2 * window.padding <= window.size;
  if (!fits || (places - 1) * window.stride - window.padding >= size) {
    throw std::invalid_argument(message("max_pool: ", places, " windows of ", window.size,
                                        ", stride ", window.stride, ", padding ", window.padding,
                                        ", dilation ", window.dilation, " do not fit ", size));
  }
}

void check(const MaxPoolCall& call) {
  if (call.input.element != Element::kFloat32 || call.out.element != Element::kFloat32 ||
      call.indices.element != Element::kInt64) {
    throw DtypeError("max_pool: input and out must be float32, indices int64");
  }
  const Shape input = call.input.shape_copy(), out = call.out.shape_copy();
  const bool fits = input.size() >= 2 && out.size() == input.size() &&
                    std::equal(input.begin(), input.end() - 2, out.begin()) &&
                    call.indices.shape_copy() == out && !call.input.is_empty() &&
                    !call.out.is_empty();
  if (!fits || !call.input.is_contiguous() || !call.out.is_contiguous() ||
      !call.indices.is_contiguous()) {
    throw std::invalid_argument(message("max_pool: input ", input, ", out ", out, " and indices ",
                                        call.indices.shape_copy(),
                                        " must fit, be contiguous and not be empty"));
  }
  check_window(call.rows, call.input.size(-2), call.out.size(-2));
  check_window(call.columns, call.input.size(-1), call.out.size(-1));
  if (call.input.size(-1) * call.input.size(-2) > std::numeric_limits<std::int32_t>::max()) {
    throw std::invalid_argument(message("max_pool: a picture of ", input, " has 2^31 elements"));
  }
  if (call.threads < 1 || call.threads > kThreadsMax) {
    throw std::invalid_argument(
        message("max_pool: threads ", call.threads, " is not in [1, ", kThreadsMax, "]"));
  }
}

}  // namespace

void max_pool(const MaxPoolCall& call) {
  check(call);
  const Picture size{call.input.size(-2), call.input.size(-1), call.out.size(-2),
                     call.out.size(-1)};
  std::int64_t pictures = 1;
  for (int dim = 0; dim < call.input.rank - 2; ++dim) {
    pictures *= call.input.size(dim);
  }
  const auto* input = static_cast<const float*>(call.input.data);
  auto* out = static_cast<float*>(call.out.data);
  auto* indices = static_cast<std::int64_t*>(call.indices.data);
  const Take take = call.columns.stride == 1   ? take_larger<1>
                    : call.columns.stride == 2 ? take_larger<2>
                                               : take_larger<0>;
  const Columns columns = columns_of(call.columns, size);
  const std::int64_t area = size.height * size.width;
  const std::int64_t each = std::max<std::int64_t>(1, kElementsPerTask / area);
  run_tasks((pictures + each - 1) / each, call.threads, [&](std::int64_t task) {
    std::vector<std::int32_t> where(static_cast<std::size_t>(size.out_width));
    const std::int64_t end = std::min(pictures, (task + 1) * each);
    for (std::int64_t picture = task * each; picture < end; ++picture) {
      for (std::int64_t place = 0; place < size.out_height; ++place) {
        const std::int64_t first = (picture * size.out_height + place) * size.out_width;
        one_row(call, size, columns, input + picture * area, place, take, out + first,
                where.data());
        std::copy(where.begin(), where.end(), indices + first);
      }
    }
  });
}

}  // namespace gt
