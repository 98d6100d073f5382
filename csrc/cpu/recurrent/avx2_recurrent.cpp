// Recurrent layers with AVX2. This file alone is compiled with -mavx2 -mfma: call nothing that
// other files define inline.
#include <immintrin.h>

#include "cpu/recurrent/recurrent_loops.h"

namespace gt {
namespace {

struct MaskedEnds {
  static inline __m256i mask(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }

  static inline void load(void* vector, const float* from, int count) {
    const __m256 lanes = _mm256_maskload_ps(from, mask(count));
    __builtin_memcpy(vector, &lanes, sizeof lanes);
  }

  static inline void store(float* to, const void* vector, int count) {
    __m256 lanes;
    __builtin_memcpy(&lanes, vector, sizeof lanes);
    _mm256_maskstore_ps(to, mask(count), lanes);
  }
};

}  // namespace

// Only data leaves this file: an inline function that other files call could be compiled to AVX2.
extern constexpr RecurrentPath kAvx2Recurrent = recurrent_path_of<8, MaskedEnds, 2>();

}  // namespace gt
