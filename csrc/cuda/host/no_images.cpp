// Empty table of fat binaries, for builds without nvcc.
#include "cuda/host/launcher.h"

namespace gt::cuda {

const Images& embedded_images() {
  static const Images none;
  return none;
}

}  // namespace gt::cuda
