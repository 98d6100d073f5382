// Virtual ranks of a collective: their buffers, and the launch that runs them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/collectives.h"
#include "emulator/tests/check.h"

namespace gt::testing {

constexpr unsigned kCollectiveBlocks = 2;

// Ranks with inputs and outputs of type T. `first_call` may be a large number, as after many calls.
template <class T>
struct VirtualRanks {
  VirtualRanks(const std::vector<std::vector<T>>& inputs, std::size_t output_elements,
               std::size_t slot_elements, std::int64_t elements, std::uint32_t first_call = 1) {
    const auto count = static_cast<std::uint32_t>(inputs.size());
    call = {0, count, first_call, 0, 0, elements, 0, 1'000'000'000};
    call.slot_bytes = static_cast<std::int64_t>((slot_elements * sizeof(T) + 15) / 16 * 16);
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      peers.input[rank] = keep(input, "input", inputs[rank]);
      outputs.push_back(std::make_unique<emulator::Buffer<T>>("output", output_elements));
      peers.output[rank] = outputs.back()->data();
      staging.push_back(std::make_unique<emulator::Buffer<unsigned char>>(
          "staging", static_cast<std::size_t>(2 * call.slot_bytes)));
      peers.staging[rank] = staging.back()->data();
      peers.flags[rank] =
          keep(words, "flags",
               std::vector<std::uint32_t>(kCollectiveBlocks * count, 2 * first_call - 2));
      peers.error[rank] = keep(words, "error", std::vector<std::uint32_t>{0, 0});
    }
  }

  // Launches the first `playing` ranks.
  emulator::Launch launch(std::uint64_t seed, std::uint32_t playing) const {
    emulator::Launch wanted;
    wanted.grid = {kCollectiveBlocks, playing, 1};
    wanted.block.x = 32;
    wanted.is_cooperative = true;
    wanted.seed = seed;
    return wanted;
  }
  emulator::Launch launch(std::uint64_t seed) const { return launch(seed, call.ranks); }

  void check_output(std::uint32_t rank, const std::vector<T>& expected) const {
    check_equal(outputs[rank]->values(), expected, "output");
  }
  void check_errors(std::uint32_t playing, std::uint32_t missing) const {
    for (std::uint32_t rank = 0; rank < playing; ++rank) {
      check(*peers.error[rank] == missing + 1, "error word of rank ", rank, ": ",
            *peers.error[rank]);
    }
  }

  CollectivePeers peers{};
  CollectiveCall call{};
  std::vector<std::unique_ptr<emulator::Buffer<T>>> input, outputs;
  std::vector<std::unique_ptr<emulator::Buffer<unsigned char>>> staging;
  std::vector<std::unique_ptr<emulator::Buffer<std::uint32_t>>> words;

 private:
  template <class U>
  static U* keep(std::vector<std::unique_ptr<emulator::Buffer<U>>>& all, const std::string& name,
                 const std::vector<U>& values) {
    all.push_back(std::make_unique<emulator::Buffer<U>>(name, values));
    return all.back()->data();
  }
};

}  // namespace gt::testing
