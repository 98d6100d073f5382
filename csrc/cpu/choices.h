// Choices between two arrays by bools, over threads. The loops are array_path.h's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/array_path.h"

namespace gt {

// out [count] = condition ? x : y, for elements of 1, 2, 4 or 8 bytes. The condition has `period`
// bools, at least one, that are repeated; x and y have `count` elements, or one for all, which out
// may not overlap. out may be x or y.
struct Choice {
  std::size_t element_bytes;
  ChoiceSides sides;
  std::size_t period;
  void* out;
  std::size_t count;
};

// Throws std::invalid_argument for elements of other sizes.
void choose(const Choice& choice, int threads);

}  // namespace gt
