// Attention with AVX-512 (F, BW, DQ, VL). This file alone is compiled with these.
#include "cpu/attention/loops.h"

namespace gt {

extern constexpr AttentionPath kAvx512Attention = attention_path();

}  // namespace gt
