// Element types: how they are stored, and the type in which kernels compute. Included by kernels
// only.
#pragma once

#include <gt_device.h>

namespace gt {
namespace {

using device::Half;

struct Float32 {
  using Stored = float;
  __device__ static float wide(float value) { return value; }
  __device__ static float narrow(float value) { return value; }
};

template <Half kType>
struct HalfElement {
  using Stored = std::uint16_t;
  __device__ static float wide(std::uint16_t bits) { return device::to_float<kType>(bits); }
  __device__ static std::uint16_t narrow(float value) { return device::from_float<kType>(value); }
};
using Bfloat16 = HalfElement<Half::kBfloat16>;
using Float16 = HalfElement<Half::kFloat16>;

}  // namespace
}  // namespace gt
