#include "cpu/dims.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/pool.h"
#include "core/scratch.h"

namespace gt {
namespace {

// Numbers in one task, which takes about 5 us.
constexpr std::size_t kTogether = 16 * 1024;

// Numbers in one part of a long row.
constexpr std::size_t kPart = 32 * 1024;

std::size_t parts_of(std::size_t whole, std::size_t part) { return (whole + part - 1) / part; }

// Calls work(begin, end) for ranges of [0, items), where an item has `size` numbers; a range begins
// at a multiple of 8.
template <class Work>
void in_tasks(std::size_t items, std::size_t size, int threads, const Work& work) {
  const std::size_t together = kTogether / std::max<std::size_t>(1, 8 * size) * 8 + 8;
  run_tasks(static_cast<std::int64_t>(parts_of(items, together)), threads, [&](std::int64_t task) {
    const std::size_t begin = static_cast<std::size_t>(task) * together;
    work(begin, std::min(begin + together, items));
  });
}

// Calls work(offset in x, offset in out, columns) for blocks of columns; out has `out_rows` rows.
template <class Work>
void by_columns(const DimShape& shape, std::size_t out_rows, int threads, const Work& work) {
  const std::size_t blocks = parts_of(shape.inner, kColumnsTogether);
  const std::size_t size = shape.count * std::min(shape.inner, kColumnsTogether);
  const std::size_t together = std::max<std::size_t>(1, kTogether / size);
  const std::size_t items = shape.outer * blocks;
  run_tasks(static_cast<std::int64_t>(parts_of(items, together)), threads, [&](std::int64_t task) {
    const std::size_t begin = static_cast<std::size_t>(task) * together;
    for (std::size_t item = begin; item < std::min(begin + together, items); ++item) {
      const std::size_t column = item % blocks * kColumnsTogether;
      const std::size_t outer = item / blocks * shape.inner;
      const ColumnBlock block{shape.count, shape.inner,
                              std::min(kColumnsTogether, shape.inner - column)};
      work(outer * shape.count + column, outer * out_rows + column, block);
    }
  });
}

// Computes one number for each row: of(offset of the row, begin, count) for each part of the row,
// then finish(row, results of the parts, number of parts). The cut depends on the row's length
// alone.
template <class Part, class Of, class Finish>
void by_rows(const DimShape& shape, int threads, const Of& of, const Finish& finish) {
  const std::size_t count = shape.count;
  if (count <= kPart) {
    in_tasks(shape.outer, count, threads, [&](std::size_t begin, std::size_t end) {
      for (std::size_t row = begin; row < end; ++row) {
        const Part part = of(row * count, 0, count);
        finish(row, &part, 1);
      }
    });
    return;
  }
  thread_local Scratch scratch;
  const std::size_t parts = parts_of(count, kPart);
  const auto tasks = static_cast<std::int64_t>(shape.outer * parts);
  Part* made = scratch.numbers<Part>(tasks);
  run_tasks(tasks, threads, [&](std::int64_t task) {
    const auto at = static_cast<std::size_t>(task);
    const std::size_t begin = at % parts * kPart;
    made[at] = of(at / parts * count, begin, std::min(kPart, count - begin));
  });
  for (std::size_t row = 0; row < shape.outer; ++row) {
    finish(row, made + row * parts, parts);
  }
}

// True where `one`, which comes later, replaces `best`.
bool is_better(Place kind, float one, float best) {
  if (best != best) {
    return false;
  }
  return one != one || (kind == Place::kLargest ? one > best : one < best);
}

template <class T>
void search(const SearchLoops<T> (&loops)[kSoughtCount], Truth kind, const T* x, std::uint8_t* out,
            const DimShape& shape, int threads) {
  const bool is_any = kind == Truth::kAny;
  const SearchLoops<T>& loop =
      loops[static_cast<std::size_t>(is_any ? Sought::kNonzero : Sought::kZero)];
  const auto truth_of = [is_any](bool is_found) {
    return static_cast<std::uint8_t>(is_found == is_any);
  };
  if (shape.inner > 1) {
    by_columns(shape, 1, threads, [&](std::size_t at, std::size_t to, const ColumnBlock& block) {
      loop.columns(x + at, block, out + to);
      for (std::size_t i = 0; i < block.columns; ++i) {
        out[to + i] = truth_of(out[to + i] != 0);
      }
    });
    return;
  }
  by_rows<bool>(
      shape, threads,
      [&](std::size_t row, std::size_t begin, std::size_t count) {
        return loop.row(x + row + begin, count);
      },
      [&](std::size_t row, const bool* parts, std::size_t count) {
        out[row] = truth_of(std::find(parts, parts + count, true) != parts + count);
      });
}

float spread_of(const SpreadKind& kind, const Spread& sums, std::size_t count) {
  const auto size = static_cast<double>(count);
  const double squares = sums.squares - sums.sum * sums.sum / size;
  // The difference may be slightly below zero by rounding; NaN stays.
  const double variance = (squares < 0.0 ? 0.0 : squares) / (size - kind.correction);
  return static_cast<float>(kind.is_root ? std::sqrt(variance) : variance);
}

}  // namespace

void cumsum(const float* x, float* out, const DimShape& shape, int threads) {
  const ArrayPath& path = array_path();
  if (shape.inner > 1) {
    by_columns(shape, shape.count, threads,
               [&](std::size_t at, std::size_t to, const ColumnBlock& block) {
                 path.cumsum_columns(x + at, block, out + to);
               });
    return;
  }
  const std::size_t count = shape.count;
  in_tasks(shape.outer, count, threads, [&](std::size_t begin, std::size_t end) {
    path.cumsum_rows(x + begin * count, out + begin * count, end - begin, count);
  });
}

void cumsum(const std::uint8_t* x, std::int64_t* out, const DimShape& shape, int threads) {
  const BoolSums& loops = array_path().bool_sums;
  const std::size_t count = shape.count;
  if (shape.inner > 1) {
    by_columns(shape, count, threads,
               [&](std::size_t at, std::size_t to, const ColumnBlock& block) {
                 loops.running_columns(x + at, block, out + to);
               });
    return;
  }
  in_tasks(shape.outer, count, threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) {
      loops.running_row(x + row * count, out + row * count, count);
    }
  });
}

void count_true(const std::uint8_t* x, std::int64_t* out, const DimShape& shape, int threads) {
  const BoolSums& loops = array_path().bool_sums;
  if (shape.inner > 1) {
    by_columns(shape, 1, threads, [&](std::size_t at, std::size_t to, const ColumnBlock& block) {
      loops.columns(x + at, block, out + to);
    });
    return;
  }
  by_rows<std::int64_t>(
      shape, threads,
      [&](std::size_t row, std::size_t begin, std::size_t count) {
        return loops.row(x + row + begin, count);
      },
      [&](std::size_t row, const std::int64_t* parts, std::size_t count) {
        out[row] = std::accumulate(parts, parts + count, std::int64_t{0});
      });
}

void places(Place kind, const float* x, std::int64_t* out, const DimShape& shape, int threads) {
  const PlaceLoops& loops = array_path().places[static_cast<std::size_t>(kind)];
  if (shape.inner > 1) {
    by_columns(shape, 1, threads, [&](std::size_t at, std::size_t to, const ColumnBlock& block) {
      loops.columns(x + at, block, out + to);
    });
    return;
  }
  by_rows<std::size_t>(
      shape, threads,
      [&](std::size_t row, std::size_t begin, std::size_t count) {
        return begin + loops.row(x + row + begin, count);
      },
      [&](std::size_t row, const std::size_t* parts, std::size_t count) {
        const float* values = x + row * shape.count;
        std::size_t best = parts[0];
        for (std::size_t part = 1; part < count; ++part) {
          best = is_better(kind, values[parts[part]], values[best]) ? parts[part] : best;
        }
        out[row] = static_cast<std::int64_t>(best);
      });
}

void truth(Truth kind, const float* x, std::uint8_t* out, const DimShape& shape, int threads) {
  search(array_path().float_searches, kind, x, out, shape, threads);
}

void truth(Truth kind, const std::uint8_t* x, std::uint8_t* out, const DimShape& shape,
           int threads) {
  search(array_path().bool_searches, kind, x, out, shape, threads);
}

void spread(const SpreadKind& kind, const float* x, float* out, const DimShape& shape,
            int threads) {
  const ArrayPath& path = array_path();
  if (shape.inner > 1) {
    by_columns(shape, 1, threads, [&](std::size_t at, std::size_t to, const ColumnBlock& block) {
      Spread sums[kColumnsTogether];
      path.spread_columns(x + at, block, sums);
      for (std::size_t i = 0; i < block.columns; ++i) {
        out[to + i] = spread_of(kind, sums[i], shape.count);
      }
    });
    return;
  }
  by_rows<Spread>(
      shape, threads,
      [&](std::size_t row, std::size_t begin, std::size_t count) {
        return path.spread_rows(x + row + begin, x[row], {1, count, count});
      },
      [&](std::size_t row, const Spread* parts, std::size_t count) {
        Spread sums = parts[0];
        for (std::size_t part = 1; part < count; ++part) {
          sums.sum += parts[part].sum;
          sums.squares += parts[part].squares;
        }
        out[row] = spread_of(kind, sums, shape.count);
      });
}

}  // namespace gt
