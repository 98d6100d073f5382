// Few rows times a large matrix that is read once from memory and not packed. Included by the files
// of one instruction set only; nothing here may have external linkage.
#pragma once

#include <cstdint>

#include "cpu/matmul/finish.h"

namespace gt {
namespace {

// Prefetches data a few vectors ahead: there are many streams of memory, and each ends soon.
template <class T, class Number>
inline void fetch_ahead(const Number* from) {
  constexpr int kVectorsAhead = 4;
  __builtin_prefetch(from + kVectorsAhead * kLanes<T>);
}

// sums[row][column] (+)= x[row][steps] * right[steps] for a vector of columns.
template <class T, int kSteps, int kRows>
[[gnu::always_inline]] inline void add_rows(const T* x, std::int64_t depth, std::int64_t apart,
                                            const Vector<T> (&right)[kSteps], T* sums,
                                            std::int64_t ld, int lanes, bool add) {
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    T* to = sums + row * ld;
    Vector<T> sum = add ? read_numbers<T>(to, lanes) : Vector<T>{};
#pragma GCC unroll 8
    for (int step = 0; step < kSteps; ++step) {
      sum += x[row * depth + step * apart] * right[step];
    }
    write_numbers<T>(to, sum, lanes);
  }
}

// Adds kSteps steps, loaded once, to the sums of all rows of x.
template <class T, class Number, int kSteps>
[[gnu::always_inline]] inline void add_columns(int m, const T* x, std::int64_t depth,
                                               std::int64_t apart, const Number* w,
                                               std::int64_t along, T* sums, std::int64_t ld,
                                               int lanes, bool add) {
  Vector<T> right[kSteps];
#pragma GCC unroll 8
  for (int step = 0; step < kSteps; ++step) {
    fetch_ahead<T>(w + step * apart * along);
    right[step] = lanes == kLanes<T> ? read_vector<T>(w + step * apart * along)
                                     : read_numbers<T>(w + step * apart * along, lanes);
  }
  if (m == kSkinnyRowsMax) {
    return add_rows<T, kSteps, kSkinnyRowsMax>(x, depth, apart, right, sums, ld, lanes, add);
  }
  int row = 0;
  if ((m & 4) != 0) {
    add_rows<T, kSteps, 4>(x, depth, apart, right, sums, ld, lanes, add);
    row = 4;
  }
  if ((m & 2) != 0) {
    add_rows<T, kSteps, 2>(x + row * depth, depth, apart, right, sums + row * ld, ld, lanes, add);
    row += 2;
  }
  if ((m & 1) != 0) {
    add_rows<T, kSteps, 1>(x + row * depth, depth, apart, right, sums + row * ld, ld, lanes, add);
  }
}

// Adds steps of w[step][column] with adjacent columns: eight steps at once, so that sums are read
// and written an eighth as often and eight streams of memory run in parallel.
template <class T, class Number, int kSteps>
inline void add_steps(int m, const T* x, std::int64_t depth, std::int64_t apart, const Number* w,
                      std::int64_t along, std::int64_t columns, T* sums, std::int64_t ld,
                      bool add) {
  constexpr int kWhole = kLanes<T>;
  std::int64_t column = 0;
  for (; column + kWhole <= columns; column += kWhole) {
    add_columns<T, Number, kSteps>(m, x, depth, apart, w + column, along, sums + column, ld, kWhole,
                                   add);
  }
  if (column < columns) {
    add_columns<T, Number, kSteps>(m, x, depth, apart, w + column, along, sums + column, ld,
                                   static_cast<int>(columns - column), add);
  }
}

// Up to this many rows, the steps that are taken together are far apart, and each is followed by
// its next one: eight long streams of memory. With more rows the steps would evict each other from
// the first-level cache.
constexpr int kRowsApartMax = 2;

template <class T, class Number>
void skinny_rows_of(int m, std::int64_t depth, const T* x, const PanelSource& source,
                    std::int64_t begin, std::int64_t end, T* sums, std::int64_t ld) {
  constexpr int kSteps = 8;
  const auto* w = static_cast<const Number*>(source.data) + begin;
  const std::int64_t whole = depth / kSteps;
  const std::int64_t apart = m <= kRowsApartMax ? whole : 1;
  const std::int64_t next = m <= kRowsApartMax ? 1 : kSteps;
  for (std::int64_t at = 0; at < whole; ++at) {
    const std::int64_t step = at * next;
    add_steps<T, Number, kSteps>(m, x + step, depth, apart, w + step * source.along, source.along,
                                 end - begin, sums + begin, ld, at > 0);
  }
  for (std::int64_t step = kSteps * whole; step < depth; ++step) {
    add_steps<T, Number, 1>(m, x + step, depth, 0, w + step * source.along, source.along,
                            end - begin, sums + begin, ld, step > 0);
  }
}

// Products of w[step][column] with adjacent steps: kColumns dot products of kRows rows at once,
// each in kParts sums.
template <class T, class Number, int kRows, int kColumns, int kParts>
inline void dot(std::int64_t depth, const T* x, const Number* w, std::int64_t across, T* sums,
                std::int64_t ld, std::int64_t apart) {
  Vector<T> sum[kParts][kRows][kColumns] = {};
  const auto add = [&](std::int64_t step, Vector<T>(&to)[kRows][kColumns], const auto& read) {
    Vector<T> right[kColumns];
#pragma GCC unroll 8
    for (int column = 0; column < kColumns; ++column) {
      fetch_ahead<T>(w + column * across + step);
      right[column] = read(w + column * across + step);
    }
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const Vector<T> left = read(x + row * depth + step);
#pragma GCC unroll 8
      for (int column = 0; column < kColumns; ++column) {
        to[row][column] += left * right[column];
      }
    }
  };
  const auto read_whole = [](const auto* from) { return read_vector<T>(from); };
  std::int64_t step = 0;
  for (; step + kParts * kLanes<T> <= depth; step += kParts * kLanes<T>) {
#pragma GCC unroll 8
    for (int part = 0; part < kParts; ++part) {
      add(step + part * kLanes<T>, sum[part], read_whole);
    }
  }
  for (; step + kLanes<T> <= depth; step += kLanes<T>) {
    add(step, sum[0], read_whole);
  }
  if (step < depth) {
    add(step, sum[0], [lanes = static_cast<int>(depth - step)](const auto* from) {
      return read_numbers<T>(from, lanes);
    });
  }
  // Unrolled, because sums with a variable index would be stored at each step.
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int column = 0; column < kColumns; ++column) {
      Vector<T> whole = sum[0][row][column];
#pragma GCC unroll 8
      for (int part = 1; part < kParts; ++part) {
        whole += sum[part][row][column];
      }
      sums[row * ld + column * apart] = lane_sum<T>(whole);
    }
  }
}

// Takes columns far from each other, each followed by its next one: few long streams of memory.
template <class T, class Number, int kRows>
void dots(std::int64_t depth, const T* x, const Number* w, std::int64_t across, std::int64_t begin,
          std::int64_t end, T* sums, std::int64_t ld) {
  constexpr int kColumns = 4;
  // Independent sums, enough to hide the latency of a multiply-add.
  constexpr int kParts = kRows * kColumns >= 8 ? 1 : 8 / (kRows * kColumns);
  const std::int64_t apart = (end - begin) / kColumns;
  for (std::int64_t column = begin; column < begin + apart; ++column) {
    dot<T, Number, kRows, kColumns, kParts>(depth, x, w + column * across, apart * across,
                                            sums + column, ld, apart);
  }
  for (std::int64_t column = begin + kColumns * apart; column < end; ++column) {
    dot<T, Number, kRows, 1, kParts>(depth, x, w + column * across, 0, sums + column, ld, 0);
  }
}

template <class T, class Number>
void skinny_columns_of(int m, std::int64_t depth, const T* x, const PanelSource& source,
                       std::int64_t begin, std::int64_t end, T* sums, std::int64_t ld) {
  const auto* w = static_cast<const Number*>(source.data);
  const std::int64_t across = source.across;
  for (int row = 0; row < m;) {
    const T* left = x + row * depth;
    T* to = sums + row * ld;
    const int rows = m - row;
    if (rows >= 8) {
      dots<T, Number, 8>(depth, left, w, across, begin, end, to, ld);
      row += 8;
    } else if (rows >= 4) {
      dots<T, Number, 4>(depth, left, w, across, begin, end, to, ld);
      row += 4;
    } else if (rows >= 2) {
      dots<T, Number, 2>(depth, left, w, across, begin, end, to, ld);
      row += 2;
    } else {
      dots<T, Number, 1>(depth, left, w, across, begin, end, to, ld);
      row += 1;
    }
  }
}

template <class T>
void skinny_rows(int m, std::int64_t depth, const T* x, const PanelSource& w, std::int64_t begin,
                 std::int64_t end, T* sums, std::int64_t ld) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (w.element == Element::kBfloat16) {
      return skinny_rows_of<T, Bfloat16>(m, depth, x, w, begin, end, sums, ld);
    }
  }
  skinny_rows_of<T, T>(m, depth, x, w, begin, end, sums, ld);
}

template <class T>
void skinny_columns(int m, std::int64_t depth, const T* x, const PanelSource& w, std::int64_t begin,
                    std::int64_t end, T* sums, std::int64_t ld) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (w.element == Element::kBfloat16) {
      return skinny_columns_of<T, Bfloat16>(m, depth, x, w, begin, end, sums, ld);
    }
  }
  skinny_columns_of<T, T>(m, depth, x, w, begin, end, sums, ld);
}

}  // namespace
}  // namespace gt
