// Recurrent layers over a whole sequence: packs the weight, and splits the rows over threads. The
// loops are recurrent_path.h's.
#pragma once

#include "cpu/recurrent/recurrent_path.h"

namespace gt {

// `weight` is the weight of the state, [g * h, h]; `in.panels` is ignored. Values do not depend on
// `threads`, the maximum number used. Throws std::invalid_argument for sizes that are not positive,
// a missing array, or threads outside [1, kThreadsMax].
void recurrent_forward(Recurrence kind, const RecurrentSizes& sizes, const RecurrentForward& in,
                       const float* weight, int threads);
void recurrent_backward(Recurrence kind, const RecurrentSizes& sizes, const RecurrentBackward& in,
                        const float* weight, int threads);

}  // namespace gt
