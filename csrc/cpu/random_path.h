// Inner loops of random numbers, once for each instruction set. The loops handle words and values;
// boxes, dtypes and threads belong to random_fill.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "algo/philox.h"
#include "algo/random_values.h"
#include "core/cpu_path.h"

namespace gt {

// `words` is 64-byte aligned. philox writes whole groups of kBlockGroup blocks; the other loops
// read `blocks` blocks and write all their values: four for each block, or two where a value takes
// 64 bits of words.
struct RandomPath {
  static constexpr std::size_t kBlockGroup = 32;  // four AVX-512 vectors of eight blocks

  void (*philox)(Stream stream, std::uint64_t first_block, std::size_t blocks,
                 std::uint32_t* words);
  void (*uniform_f32)(const std::uint32_t* words, std::size_t blocks, UniformRange<float> range,
                      float* out);
  void (*uniform_f64)(const std::uint32_t* words, std::size_t blocks, UniformRange<double> range,
                      double* out);
  void (*normal_f32)(const std::uint32_t* words, std::size_t blocks, NormalShape<float> shape,
                     float* out);
  void (*normal_f64)(const std::uint32_t* words, std::size_t blocks, NormalShape<double> shape,
                     double* out);
  void (*integers)(const std::uint32_t* words, std::size_t blocks, IntegerRange range,
                   std::int64_t* out);
  // out = 1 where word <= last, else 0.
  void (*at_most)(const std::uint32_t* words, std::size_t blocks, std::uint32_t last,
                  std::uint8_t* out);
  void (*round_bf16)(const float* values, std::size_t count, std::uint16_t* out);
  void (*round_f16)(const float* values, std::size_t count, std::uint16_t* out);
};

extern const RandomPath kScalarRandom;
extern const RandomPath kAvx2Random;
extern const RandomPath kAvx512Random;

// Filled by x86.cpp, or no_x86.cpp on other machines.
extern const PathTable<RandomPath> kRandomPaths;

// The loops in use.
inline const RandomPath& random_path() { return of_path(kRandomPaths); }

}  // namespace gt
