// Attention with AVX2 and FMA. This file alone is compiled with these.
#include "cpu/attention/loops.h"

namespace gt {

extern constexpr AttentionPath kAvx2Attention = attention_path();

}  // namespace gt
