// Random numbers with AVX-512 (F, BW, DQ, VL). This file alone is compiled with these: call nothing
// that other files define inline.
#include <immintrin.h>

#include "cpu/random_loops.h"

namespace gt {
namespace {

// Eight blocks of Philox, with the layout of avx2_random.cpp.
struct Counters {
  __m512i c0, c1, c2, c3;
};

constexpr int kXorOfThree = 0x96;  // truth table of a ^ b ^ c

inline Counters philox_round(const Counters& in, __m512i key0, __m512i key1) {
  const __m512i multiplier0 = _mm512_set1_epi64(std::int64_t{kPhiloxMultiplier0});
  const __m512i multiplier1 = _mm512_set1_epi64(std::int64_t{kPhiloxMultiplier1});
  const __m512i product0 = _mm512_mul_epu32(in.c0, multiplier0);
  const __m512i product1 = _mm512_mul_epu32(in.c2, multiplier1);
  const __m512i high0 = _mm512_srli_epi64(product0, 32);
  const __m512i high1 = _mm512_srli_epi64(product1, 32);
  return {_mm512_ternarylogic_epi64(in.c1, key0, high1, kXorOfThree), product1,
          _mm512_ternarylogic_epi64(in.c3, key1, high0, kXorOfThree), product0};
}

// The low halves of `low` and `high`, adjacent in one lane.
inline __m512i joined(__m512i low, __m512i high) {
  return _mm512_mask_blend_epi32(0xAAAA, low, _mm512_slli_epi64(high, 32));
}

inline void store(const Counters& counters, std::uint32_t* words) {
  const __m512i front = joined(counters.c0, counters.c1);
  const __m512i back = joined(counters.c2, counters.c3);
  const __m512i first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
  const __m512i last = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
  _mm512_store_si512(words, _mm512_permutex2var_epi64(front, first, back));
  _mm512_store_si512(words + 16, _mm512_permutex2var_epi64(front, last, back));
}

void philox_avx512(Stream stream, std::uint64_t first_block, std::size_t blocks,
                   std::uint32_t* words) {
  constexpr std::size_t kVectors = 4;  // independent chains, to hide the multiplication's latency
  constexpr std::size_t kStep = 8 * kVectors;
  const __m512i draw = _mm512_set1_epi64(static_cast<std::int64_t>(stream.draw));
  const __m512i lanes = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
  for (std::size_t block = 0; block < blocks; block += kStep) {
    Counters counters[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
      const auto first = static_cast<std::int64_t>(first_block + block + 8 * v);
      const __m512i index = _mm512_add_epi64(_mm512_set1_epi64(first), lanes);
      counters[v] = {index, _mm512_srli_epi64(index, 32), draw, _mm512_srli_epi64(draw, 32)};
    }
    std::uint32_t key0 = low_word(stream.seed);
    std::uint32_t key1 = high_word(stream.seed);
    for (std::uint32_t round = 0; round < kPhiloxRounds; ++round) {
      const __m512i keys0 = _mm512_set1_epi64(std::int64_t{key0});
      const __m512i keys1 = _mm512_set1_epi64(std::int64_t{key1});
      for (Counters& vector : counters) {
        vector = philox_round(vector, keys0, keys1);
      }
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
    for (std::size_t v = 0; v < kVectors; ++v) {
      store(counters[v], words + 4 * (block + 8 * v));
    }
  }
}

}  // namespace

// Only data leaves this file: an inline function that other files call could be compiled to
// AVX-512.
extern constexpr RandomPath kAvx512Random = path_of(philox_avx512);

}  // namespace gt
