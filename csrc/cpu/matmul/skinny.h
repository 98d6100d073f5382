// Few rows times a large matrix, which is read once from memory and not packed. Included by the
// files of one instruction set only; nothing here may have external linkage.
#pragma once

#include <cstdint>

#include "cpu/matmul/finish.h"

namespace gt {
namespace {

// A full vector of stored numbers.
template <class T, class Number>
inline Vector<T> read_vector(const Number* from) {
  if constexpr (sizeof(T) == sizeof(Number)) {
    return load(from);
  } else {
    typedef std::uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));
    typedef std::uint32_t Words __attribute__((vector_size(kVectorBytes)));
    Halves bits;
    std::memcpy(&bits, from, sizeof bits);
    return reinterpret_cast<Vector<T>>(__builtin_convertvector(bits, Words) << 16);
  }
}

// Fetches what is read a few vectors later: streams of memory are many, and each ends soon.
template <class T, class Number>
inline void fetch_ahead(const Number* from) {
  constexpr int kVectorsAhead = 4;
  __builtin_prefetch(from + kVectorsAhead * kLanes<T>);
}

// sums[row][column] (+)= x[row][steps] * right[steps] for a vector of columns.
template <class T, int kSteps, int kRows>
[[gnu::always_inline]] inline void add_rows(const T* x, std::int64_t depth,
                                            const Vector<T> (&right)[kSteps], T* sums,
                                            std::int64_t ld, int lanes, bool add) {
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    T* to = sums + row * ld;
    Vector<T> sum = add ? read_numbers<T>(to, lanes) : Vector<T>{};
#pragma GCC unroll 8
    for (int step = 0; step < kSteps; ++step) {
      sum += x[row * depth + step] * right[step];
    }
    write_numbers<T>(to, sum, lanes);
  }
}

// The same for all rows of x and kSteps steps from memory.
template <class T, class Number, int kSteps>
[[gnu::always_inline]] inline void add_columns(int m, const T* x, std::int64_t depth,
                                               const Number* w, std::int64_t along, T* sums,
                                               std::int64_t ld, int lanes, bool add) {
  Vector<T> right[kSteps];
#pragma GCC unroll 8
  for (int step = 0; step < kSteps; ++step) {
    fetch_ahead<T>(w + step * along);
    right[step] = lanes == kLanes<T> ? read_vector<T>(w + step * along)
                                     : read_numbers<T>(w + step * along, lanes);
  }
  if (m == kSkinnyRowsMax) {
    return add_rows<T, kSteps, kSkinnyRowsMax>(x, depth, right, sums, ld, lanes, add);
  }
  int row = 0;
  if ((m & 4) != 0) {
    add_rows<T, kSteps, 4>(x, depth, right, sums, ld, lanes, add);
    row = 4;
  }
  if ((m & 2) != 0) {
    add_rows<T, kSteps, 2>(x + row * depth, depth, right, sums + row * ld, ld, lanes, add);
    row += 2;
  }
  if ((m & 1) != 0) {
    add_rows<T, kSteps, 1>(x + row * depth, depth, right, sums + row * ld, ld, lanes, add);
  }
}

// w[step][column] with its columns side by side: eight steps at once, so that sums are read and
// written an eighth as often and eight streams of memory run.
template <class T, class Number, int kSteps>
inline void add_steps(int m, const T* x, std::int64_t depth, const Number* w, std::int64_t along,
                      std::int64_t columns, T* sums, std::int64_t ld, bool add) {
  constexpr int kWhole = kLanes<T>;
  std::int64_t column = 0;
  for (; column + kWhole <= columns; column += kWhole) {
    add_columns<T, Number, kSteps>(m, x, depth, w + column, along, sums + column, ld, kWhole, add);
  }
  if (column < columns) {
    add_columns<T, Number, kSteps>(m, x, depth, w + column, along, sums + column, ld,
                                   static_cast<int>(columns - column), add);
  }
}

template <class T, class Number>
void skinny_rows_of(int m, std::int64_t depth, const T* x, const PanelSource& source,
                    std::int64_t begin, std::int64_t end, T* sums, std::int64_t ld) {
  constexpr int kSteps = 8;
  const auto* w = static_cast<const Number*>(source.data) + begin;
  std::int64_t step = 0;
  for (; step + kSteps <= depth; step += kSteps) {
    add_steps<T, Number, kSteps>(m, x + step, depth, w + step * source.along, source.along,
                                 end - begin, sums + begin, ld, step > 0);
  }
  for (; step < depth; ++step) {
    add_steps<T, Number, 1>(m, x + step, depth, w + step * source.along, source.along, end - begin,
                            sums + begin, ld, step > 0);
  }
}

// w[step][column] with its steps side by side: kColumns dot products of kRows rows at once.
template <class T, class Number, int kRows, int kColumns>
inline void dot(std::int64_t depth, const T* x, const Number* w, std::int64_t across, T* sums,
                std::int64_t ld) {
  Vector<T> sum[kRows][kColumns] = {};
  const auto add = [&](std::int64_t step, const auto& read) {
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
        sum[row][column] += left * right[column];
      }
    }
  };
  std::int64_t step = 0;
  for (; step + kLanes<T> <= depth; step += kLanes<T>) {
    add(step, [](const auto* from) { return read_vector<T>(from); });
  }
  if (step < depth) {
    add(step, [lanes = static_cast<int>(depth - step)](const auto* from) {
      return read_numbers<T>(from, lanes);
    });
  }
  // Unrolled: sums with an index that varies would be stored at each step.
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int column = 0; column < kColumns; ++column) {
      sums[row * ld + column] = lane_sum<T>(sum[row][column]);
    }
  }
}

template <class T, class Number, int kRows>
void dots(std::int64_t depth, const T* x, const Number* w, std::int64_t across, std::int64_t begin,
          std::int64_t end, T* sums, std::int64_t ld) {
  // Sums that do not wait for each other: enough for the latency of a multiply-add.
  constexpr int kColumns = kRows == 1 ? 8 : kRows == 2 ? 4 : 2;
  std::int64_t column = begin;
  for (; column + kColumns <= end; column += kColumns) {
    dot<T, Number, kRows, kColumns>(depth, x, w + column * across, across, sums + column, ld);
  }
  for (; column < end; ++column) {
    dot<T, Number, kRows, 1>(depth, x, w + column * across, across, sums + column, ld);
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
