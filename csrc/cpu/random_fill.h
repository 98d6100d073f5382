// Fills arrays with random numbers: dtypes, boxes and threads. The values are
// algo/random_values.h's, the loops random_path.h's.
#pragma once

#include <cstdint>

#include "algo/philox.h"
#include "core/box.h"
#include "core/element.h"

namespace gt {

// A C-contiguous array that holds a box of a global tensor.
struct RandomTarget {
  void* data;
  Element element;
  Box box;
  int threads;
};

// Each throws DtypeError for an element type outside its list, std::invalid_argument for a bad
// parameter.

// float32 float64 bfloat16 float16: uniform in [low, high), or low where both are equal.
void fill_uniform(const RandomTarget& target, Stream stream, double low, double high);
// float32 float64 bfloat16 float16.
void fill_normal(const RandomTarget& target, Stream stream, double mean, double std);
// int64 int32: uniform in [low, high).
void fill_integers(const RandomTarget& target, Stream stream, std::int64_t low, std::int64_t high);
// bool int64 int32 and the floating types: 1 with probability p, else 0.
void fill_bernoulli(const RandomTarget& target, Stream stream, double p);
// bool: false with probability p; the opposite of bernoulli's.
void fill_dropout_mask(const RandomTarget& target, Stream stream, double p);

// uint32, count a multiple of four: the words of the blocks from first_block on, for tests.
void fill_words(std::uint32_t* words, std::size_t count, Stream stream, std::uint64_t first_block);

}  // namespace gt
