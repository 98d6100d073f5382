// Descriptor of a tensor copy (TMA) as CUDA's driver encodes it: CUtensorMap, 128 opaque bytes.
#pragma once

#include <cstdint>

namespace gt {

struct alignas(128) TensorMap {
  std::uint64_t words[16];
};

}  // namespace gt
