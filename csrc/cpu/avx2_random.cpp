// Random numbers with AVX2. This file alone is compiled with -mavx2: call nothing that other files
// define inline.
#include <immintrin.h>

#include "cpu/random_loops.h"

namespace gt {
namespace {

// Four blocks of Philox. Each word is in the low half of a 64-bit lane, where the multiplication
// reads and writes it; the high halves are ignored.
struct Counters {
  __m256i c0, c1, c2, c3;
};

inline Counters philox_round(const Counters& in, __m256i key0, __m256i key1) {
  const __m256i multiplier0 = _mm256_set1_epi64x(std::int64_t{kPhiloxMultiplier0});
  const __m256i multiplier1 = _mm256_set1_epi64x(std::int64_t{kPhiloxMultiplier1});
  const __m256i product0 = _mm256_mul_epu32(in.c0, multiplier0);
  const __m256i product1 = _mm256_mul_epu32(in.c2, multiplier1);
  const __m256i high0 = _mm256_srli_epi64(product0, 32);
  const __m256i high1 = _mm256_srli_epi64(product1, 32);
  return {_mm256_xor_si256(_mm256_xor_si256(in.c1, key0), high1), product1,
          _mm256_xor_si256(_mm256_xor_si256(in.c3, key1), high0), product0};
}

// The low halves of `low` and `high`, adjacent in one lane.
inline __m256i joined(__m256i low, __m256i high) {
  return _mm256_blend_epi32(low, _mm256_slli_epi64(high, 32), 0xAA);
}

inline void store(const Counters& counters, std::uint32_t* words) {
  const __m256i front = joined(counters.c0, counters.c1);
  const __m256i back = joined(counters.c2, counters.c3);
  const __m256i even = _mm256_unpacklo_epi64(front, back);  // blocks 0 and 2
  const __m256i odd = _mm256_unpackhi_epi64(front, back);   // blocks 1 and 3
  auto* out = reinterpret_cast<__m256i*>(words);
  _mm256_store_si256(out, _mm256_permute2x128_si256(even, odd, 0x20));
  _mm256_store_si256(out + 1, _mm256_permute2x128_si256(even, odd, 0x31));
}

void philox_avx2(Stream stream, std::uint64_t first_block, std::size_t blocks,
                 std::uint32_t* words) {
  constexpr std::size_t kVectors = 4;  // independent chains, to hide the multiplication's latency
  constexpr std::size_t kStep = 4 * kVectors;
  const __m256i draw = _mm256_set1_epi64x(static_cast<std::int64_t>(stream.draw));
  for (std::size_t block = 0; block < blocks; block += kStep) {
    Counters counters[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
      const auto first = static_cast<std::int64_t>(first_block + block + 4 * v);
      const __m256i index =
          _mm256_add_epi64(_mm256_set1_epi64x(first), _mm256_setr_epi64x(0, 1, 2, 3));
      counters[v] = {index, _mm256_srli_epi64(index, 32), draw, _mm256_srli_epi64(draw, 32)};
    }
    std::uint32_t key0 = low_word(stream.seed);
    std::uint32_t key1 = high_word(stream.seed);
    for (std::uint32_t round = 0; round < kPhiloxRounds; ++round) {
      const __m256i keys0 = _mm256_set1_epi64x(std::int64_t{key0});
      const __m256i keys1 = _mm256_set1_epi64x(std::int64_t{key1});
      for (Counters& vector : counters) {
        vector = philox_round(vector, keys0, keys1);
      }
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
    for (std::size_t v = 0; v < kVectors; ++v) {
      store(counters[v], words + 4 * (block + 4 * v));
    }
  }
}

}  // namespace

// Only data leaves this file: an inline function that other files call could be compiled to AVX2.
extern constexpr RandomPath kAvx2Random = path_of(philox_avx2);

}  // namespace gt
