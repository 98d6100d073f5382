// Philox 4x32-10: ten rounds that turn a counter and a key into four random words.
// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11). No distributions here.
//
// Everything is in an unnamed namespace on purpose: this file is compiled with several instruction
// sets, and the linker must not merge their copies of a function into one that needs AVX-512.
#pragma once

#include <cstdint>

#include "algo/host_device.h"

namespace gt {

// Identifies one sequence of words: the generator's seed, and the count of its random instructions.
struct Stream {
  std::uint64_t seed;
  std::uint64_t draw;
};

namespace {

constexpr std::uint32_t kPhiloxRounds = 10;
constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53U;
constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57U;
constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9U;
constexpr std::uint32_t kPhiloxWeyl1 = 0xBB67AE85U;

GT_HOST_DEVICE constexpr std::uint32_t low_word(std::uint64_t value) {
  return static_cast<std::uint32_t>(value);
}
GT_HOST_DEVICE constexpr std::uint32_t high_word(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}

// Writes the four words of one block: counter (block, draw), key seed, low words first.
GT_HOST_DEVICE inline void philox_block(const Stream& stream, std::uint64_t block,
                                        std::uint32_t* words) {
  std::uint32_t c0 = low_word(block);
  std::uint32_t c1 = high_word(block);
  std::uint32_t c2 = low_word(stream.draw);
  std::uint32_t c3 = high_word(stream.draw);
  std::uint32_t key0 = low_word(stream.seed);
  std::uint32_t key1 = high_word(stream.seed);
  for (std::uint32_t round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * c0;
    const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * c2;
    c0 = high_word(product1) ^ c1 ^ key0;
    c1 = low_word(product1);
    c2 = high_word(product0) ^ c3 ^ key1;
    c3 = low_word(product0);
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

}  // namespace
}  // namespace gt
