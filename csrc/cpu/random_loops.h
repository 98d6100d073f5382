// Loops of RandomPath in a form that the compiler vectorises. Included once by the file of each
// instruction set, which adds its own Philox; nothing here may have external linkage (see
// algo/philox.h).
#pragma once

#include "cpu/random_path.h"

namespace gt {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "word pairs are read as 64-bit integers");

// Two words as one 64-bit integer, the first one low.
using WordPair [[gnu::may_alias]] = std::uint64_t;

inline const WordPair* word_pairs(const std::uint32_t* words) {
  return reinterpret_cast<const WordPair*>(words);
}

void uniform_f32(const std::uint32_t* words, std::size_t blocks, UniformRange<float> range,
                 float* out) {
  for (std::size_t i = 0; i < 4 * blocks; ++i) {
    out[i] = uniform_value(unit_f32(words[i]), range);
  }
}

void uniform_f64(const std::uint32_t* words, std::size_t blocks, UniformRange<double> range,
                 double* out) {
  const WordPair* pairs = word_pairs(words);
  for (std::size_t i = 0; i < 2 * blocks; ++i) {
    out[i] = uniform_value(unit_f64(pairs[i]), range);
  }
}

void normal_f32(const std::uint32_t* words, std::size_t blocks, NormalShape<float> shape,
                float* out) {
  for (std::size_t i = 0; i < 4 * blocks; i += 2) {
    const NormalPair<float> pair = normal_pair_f32(words[i], words[i + 1]);
    out[i] = pair.cosine * shape.std + shape.mean;
    out[i + 1] = pair.sine * shape.std + shape.mean;
  }
}

void normal_f64(const std::uint32_t* words, std::size_t blocks, NormalShape<double> shape,
                double* out) {
  const WordPair* pairs = word_pairs(words);
  for (std::size_t i = 0; i < 2 * blocks; i += 2) {
    const NormalPair<double> pair = normal_pair_f64(pairs[i], pairs[i + 1]);
    out[i] = pair.cosine * shape.std + shape.mean;
    out[i + 1] = pair.sine * shape.std + shape.mean;
  }
}

void integers(const std::uint32_t* words, std::size_t blocks, IntegerRange range,
              std::int64_t* out) {
  const WordPair* pairs = word_pairs(words);
  for (std::size_t i = 0; i < 2 * blocks; ++i) {
    out[i] = integer_value(pairs[i], range);
  }
}

void at_most(const std::uint32_t* words, std::size_t blocks, std::uint32_t last,
             std::uint8_t* out) {
  for (std::size_t i = 0; i < 4 * blocks; ++i) {
    out[i] = words[i] <= last ? 1 : 0;
  }
}

void round_bf16(const float* values, std::size_t count, std::uint16_t* out) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = bfloat16_bits(values[i]);
  }
}

void round_f16(const float* values, std::size_t count, std::uint16_t* out) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = float16_bits(values[i]);
  }
}

using Philox = decltype(RandomPath::philox);

constexpr RandomPath path_of(Philox philox) {
  return {philox,   uniform_f32, uniform_f64, normal_f32, normal_f64,
          integers, at_most,     round_bf16,  round_f16};
}

}  // namespace
}  // namespace gt
