// Positions of a box's elements in its global tensor: core/box.h's arithmetic as plain numbers,
// which a kernel takes by value.
#pragma once

#include <cstdint>

#include "algo/host_device.h"

namespace gt {

struct BoxRuns {
  static constexpr std::uint32_t kOuterDimsMax = 8;

  std::int64_t corner = 0;        // global index of the first element
  std::int64_t run_elements = 1;  // length of a run of consecutive global indexes; never 0
  std::uint32_t outer_dims = 0;   // dims that count runs, the last one fastest
  std::int64_t shape[kOuterDimsMax] = {};
  std::int64_t global_strides[kOuterDimsMax] = {};

  GT_HOST_DEVICE std::int64_t global_index(std::int64_t local) const {
    std::int64_t run = local / run_elements;
    std::int64_t index = corner + (local - run * run_elements);
    for (std::uint32_t dim = outer_dims; dim-- > 0;) {
      const std::int64_t next = run / shape[dim];
      index += (run - next * shape[dim]) * global_strides[dim];
      run = next;
    }
    return index;
  }
};

}  // namespace gt
