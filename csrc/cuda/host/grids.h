// Definitions that all launches share: sizes of grids, addresses as pointers.
#pragma once

#include <cstdint>

#include "cuda/host/launcher.h"

namespace gt::cuda {

constexpr std::int64_t kBlocksMax = 0x7FFFFFFF;  // gridDim.x

template <class T = void>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

constexpr std::int64_t ceil_divided(std::int64_t count, std::int64_t by) {
  return (count + by - 1) / by;
}

}  // namespace gt::cuda
