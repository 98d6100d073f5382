// The emulator's contents for the 128 bytes of a CUtensorMap, whose real encoding is not public.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/tensor_map.h"

namespace gt::emulator {

constexpr unsigned kTensorDimsMax = 4;

// Innermost dim first, as cuTensorMapEncodeTiled takes them.
struct TensorFacts {
  std::uint64_t address = 0;
  std::uint32_t dims = 0;
  std::uint32_t element_bytes = 0;
  std::uint32_t swizzle_bytes = 0;  // 0, 32, 64, 128
  std::uint64_t sizes[kTensorDimsMax] = {1, 1, 1, 1};
  std::uint64_t strides[kTensorDimsMax] = {};  // bytes; of dim 0: an element's
  std::uint32_t box[kTensorDimsMax] = {1, 1, 1, 1};
};

// Reason why cuTensorMapEncodeTiled would refuse the map, by its documentation; empty where it
// would not.
std::string refusal(const TensorFacts& facts);
TensorMap encode(const TensorFacts& facts);
// Returns false where the bytes are no map.
bool decode(const void* map, TensorFacts& facts);

// Address of a byte of shared memory under a swizzle: chunks of 16 bytes are permuted within their
// row of 128 bytes, depending on the row.
constexpr std::uintptr_t swizzled(std::uintptr_t address, unsigned swizzle_bytes) {
  const std::uintptr_t chunks = swizzle_bytes == 0 ? 0 : swizzle_bytes / 16 - 1;
  return address ^ ((address >> 7 & chunks) << 4);
}

}  // namespace gt::emulator
