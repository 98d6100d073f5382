// Loops of recurrent layers over a whole sequence, once for each instruction set, and the choice
// between them. Packing and threads belong to recurrent.h.
#pragma once

#include <cstdint>

#include "core/cpu_path.h"

namespace gt {

enum class Recurrence { kLstm, kGru, kTanh, kRelu };
constexpr int kRecurrences = 4;

// All arrays are row-major float32. t steps, b rows (the batch), h units; g gates: 4, 3, 1 and 1.
struct RecurrentSizes {
  std::int64_t steps;
  std::int64_t rows;
  std::int64_t units;
  bool reverse;  // from the last step to the first
};

// `panels` is the weight of the state as pack_forward packs it. cell and cells: LSTM only; bias:
// GRU only, may be null; activations: both.
struct RecurrentForward {
  const float* gates;   // [t, b, g * h]
  const float* hidden;  // [b, h]
  const float* cell;    // [b, h]
  const float* bias;    // [g * h]
  const float* panels;
  float* output;       // [t, b, h]
  float* cells;        // [t, b, h]
  float* activations;  // [t, b, 4 * h]
};

// `panels` is the weight of the state as pack_backward packs it. Arrays are null where the kind has
// none, as above; grad_cells may be null. grads_state are the gradients of W h + bias: for GRU they
// differ from those of the gates, else they are the same array.
struct RecurrentBackward {
  const float* grad;        // [t, b, h]
  const float* grad_cells;  // [t, b, h]
  const float* hidden;      // [b, h]
  const float* cell;        // [b, h]
  const float* panels;
  const float* output;       // [t, b, h]
  const float* cells;        // [t, b, h]
  const float* activations;  // [t, b, 4 * h]
  float* grads;              // [t, b, g * h]
  float* grads_state;        // [t, b, g * h]
  float* grad_hidden;        // [b, h]
  float* grad_cell;          // [b, h]
};

// Each loop computes the rows [begin, end) of all steps. A row's values depend on no other row.
struct RecurrentPath {
  using Forward = void (*)(const RecurrentSizes&, const RecurrentForward&, std::int64_t begin,
                           std::int64_t end);
  using Backward = void (*)(const RecurrentSizes&, const RecurrentBackward&, std::int64_t begin,
                            std::int64_t end);

  std::int64_t width;  // floats of a vector
  Forward forward[kRecurrences];
  Backward backward[kRecurrences];
};

extern const RecurrentPath kScalarRecurrent;
extern const RecurrentPath kAvx2Recurrent;
extern const RecurrentPath kAvx512Recurrent;

// Filled by x86.cpp, or no_x86.cpp on other machines.
extern const PathTable<RecurrentPath> kRecurrentPaths;

}  // namespace gt
