// Recurrent layers with AVX-512. This file alone is compiled with -mavx512f and the like: call
// nothing that other files define inline.
#include <immintrin.h>

#include "cpu/recurrent/recurrent_loops.h"

namespace gt {
namespace {

struct MaskedEnds {
  static inline __mmask16 mask(int count) { return static_cast<__mmask16>((1u << count) - 1u); }

  static inline void load(void* vector, const float* from, int count) {
    const __m512 lanes = _mm512_maskz_loadu_ps(mask(count), from);
    __builtin_memcpy(vector, &lanes, sizeof lanes);
  }

  static inline void store(float* to, const void* vector, int count) {
    __m512 lanes;
    __builtin_memcpy(&lanes, vector, sizeof lanes);
    _mm512_mask_storeu_ps(to, mask(count), lanes);
  }
};

}  // namespace

// Only data leaves this file: an inline function that other files call could be compiled to
// AVX-512.
extern constexpr RecurrentPath kAvx512Recurrent = recurrent_path_of<16, MaskedEnds, 4>();

}  // namespace gt
