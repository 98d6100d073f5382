// What a tensor copy (TMA) copies from, as CUDA's driver encodes it: CUtensorMap, 128 bytes whose
// contents are the driver's.
#pragma once

#include <cstdint>

namespace gt {

struct alignas(128) TensorMap {
  std::uint64_t words[16];
};

}  // namespace gt
