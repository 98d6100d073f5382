// Bank conflicts of shared memory: 32 banks of 4 bytes. The accesses of a warp's lanes in one
// instruction are assembled from the lanes' single accesses: the n-th execution of an instruction
// by one lane since the last barrier belongs to the n-th of the others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace gt::emulator {

// Cycles of a warp's access beyond one for each 128 bytes.
std::uint64_t bank_conflicts(const std::vector<std::pair<unsigned, std::uintptr_t>>& lanes,
                             std::size_t bytes);

class WarpBanks {
 public:
  void add(unsigned lane, std::uintptr_t place, std::uintptr_t address, std::size_t bytes);
  // Adds the conflicts of the gathered accesses, by instruction, and clears them.
  void flush(std::map<std::uintptr_t, std::uint64_t>& conflicts);

 private:
  struct Access {
    std::size_t bytes = 0;
    std::vector<std::pair<unsigned, std::uintptr_t>> lanes;
  };
  std::map<std::uintptr_t, std::array<std::uint32_t, 32>> visits_;
  std::map<std::pair<std::uintptr_t, std::uint32_t>, Access> accesses_;
};

}  // namespace gt::emulator
