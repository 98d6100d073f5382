// Attention with plain C++, for every machine.
#include "cpu/attention/loops.h"

namespace gt {

extern constexpr AttentionPath kScalarAttention = attention_path();

}  // namespace gt
