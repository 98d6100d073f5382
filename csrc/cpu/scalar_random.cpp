// Random numbers in plain C++, for every machine: the twin that the vector paths must equal.
#include "cpu/random_loops.h"

namespace gt {
namespace {

void philox_scalar(Stream stream, std::uint64_t first_block, std::size_t blocks,
                   std::uint32_t* words) {
  for (std::size_t block = 0; block < blocks; ++block) {
    philox_block(stream, first_block + block, words + 4 * block);
  }
}

constexpr RandomPath kPath = path_of("scalar", philox_scalar);

}  // namespace

const RandomPath* scalar_random_path() { return &kPath; }

}  // namespace gt
