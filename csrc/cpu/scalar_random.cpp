// Random numbers in plain C++, for every machine. The vector paths must equal it.
#include "cpu/random_loops.h"

namespace gt {
namespace {

void philox_scalar(Stream stream, std::uint64_t first_block, std::size_t blocks,
                   std::uint32_t* words) {
  for (std::size_t block = 0; block < blocks; ++block) {
    philox_block(stream, first_block + block, words + 4 * block);
  }
}

}  // namespace

extern constexpr RandomPath kScalarRandom = path_of(philox_scalar);

}  // namespace gt
