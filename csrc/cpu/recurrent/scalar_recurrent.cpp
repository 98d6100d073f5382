// Recurrent layers in vectors of four, for every machine.
#include "cpu/recurrent/recurrent_loops.h"

namespace gt {

extern constexpr RecurrentPath kScalarRecurrent = recurrent_path_of<4, PlainEnds<4>, 2>();

}  // namespace gt
