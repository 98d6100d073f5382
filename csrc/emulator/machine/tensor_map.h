// What the emulator puts into the 128 bytes of a CUtensorMap, in place of the driver's secret.
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

// What the documentation of cuTensorMapEncodeTiled forbids; empty where it is allowed.
std::string refusal(const TensorFacts& facts);
TensorMap encode(const TensorFacts& facts);
// False where the bytes are no map.
bool decode(const void* map, TensorFacts& facts);

// Where a byte of shared memory stands in a pattern of swizzle_bytes: chunks of 16 bytes change
// places by the row of 128 bytes that they are in.
constexpr std::uintptr_t swizzled(std::uintptr_t address, unsigned swizzle_bytes) {
  const std::uintptr_t chunks = swizzle_bytes == 0 ? 0 : swizzle_bytes / 16 - 1;
  return address ^ ((address >> 7 & chunks) << 4);
}

}  // namespace gt::emulator
