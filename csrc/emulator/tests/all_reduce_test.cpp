// All-reduce with virtual ranks: bits, several calls in a row, a rank that does not come.
#include "cuda/all_reduce.h"

#include <memory>

#include "cuda/kernels.h"
#include "emulator/tests/check.h"

namespace gt::testing {

void repeated_all_reduce(AllReducePeers peers, AllReduceCall call, std::uint32_t calls,
                         bool is_two_shot);

namespace {

using emulator::Buffer;
using emulator::launch;
using emulator::Launch;

constexpr unsigned kBlocks = 2;

struct Ranks {
  Ranks(std::uint32_t count, std::size_t elements, std::uint32_t first_call) {
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      std::vector<float> values(elements);
      for (std::size_t i = 0; i < elements; ++i) {
        values[i] = 0.1F * static_cast<float>(i + 1) * static_cast<float>(1U << (4 * rank % 20));
        sums.resize(elements, 0.0F);
        sums[i] = rank == 0 ? values[i] : sums[i] + values[i];
      }
      floats.push_back(std::make_unique<Buffer<float>>("input", values));
      peers.input[rank] = floats.back()->data();
      floats.push_back(std::make_unique<Buffer<float>>("staging", 4 * elements));
      peers.staging[rank] = floats.back()->data();
      outputs.push_back(std::make_unique<Buffer<float>>("output", elements));
      peers.output[rank] = outputs.back()->data();
      words.push_back(std::make_unique<Buffer<std::uint32_t>>(
          "flags", std::vector<std::uint32_t>(kBlocks * count, 2 * first_call - 2)));
      peers.flags[rank] = words.back()->data();
      words.push_back(
          std::make_unique<Buffer<std::uint32_t>>("error", std::vector<std::uint32_t>{0}));
      peers.error[rank] = words.back()->data();
    }
    call = {0, count, first_call, static_cast<std::int64_t>(elements), 1'000'000'000};
  }

  void check_outputs() const {
    for (const auto& output : outputs) {
      check_equal(output->values(), sums, "output");
    }
  }

  AllReducePeers peers{};
  AllReduceCall call{};
  std::vector<float> sums;
  std::vector<std::unique_ptr<Buffer<float>>> floats, outputs;
  std::vector<std::unique_ptr<Buffer<std::uint32_t>>> words;
};

Launch ranks_of(std::uint32_t count, std::uint64_t seed) {
  Launch wanted;
  wanted.grid = {kBlocks, count, 1};
  wanted.block.x = 32;
  wanted.is_cooperative = true;
  wanted.seed = seed;
  return wanted;
}

}  // namespace

TEST(all_reduce_is_bit_equal_on_all_ranks) {
  for (const std::uint32_t count : {1U, 2U, 3U}) {
    for (const std::size_t elements : {1U, 67U}) {
      for (std::uint64_t seed = 0; seed < 3; ++seed) {
        Ranks one(count, elements, 1);
        launch(ranks_of(count, seed), [&] { gt_all_reduce_one_shot_f32(one.peers, one.call); });
        one.check_outputs();
        Ranks two(count, elements, 1);
        launch(ranks_of(count, seed), [&] { gt_all_reduce_two_shot_f32(two.peers, two.call); });
        two.check_outputs();
      }
    }
  }
}

TEST(all_reduce_calls_follow_each_other) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    for (const bool is_two_shot : {false, true}) {
      // The numbers of the calls pass 2^31 and, doubled, 2^32.
      Ranks ranks(2, 33, 0x7FFFFFFEU);
      if (!is_two_shot) {
        for (auto& flags : ranks.words) {
          std::fill_n(flags->data(), flags->size() == 1 ? 0 : flags->size(), 0x7FFFFFFDU);
        }
      }
      launch(ranks_of(2, seed),
             [&] { repeated_all_reduce(ranks.peers, ranks.call, 4, is_two_shot); });
      ranks.check_outputs();
    }
  }
}

TEST(all_reduce_says_which_rank_did_not_come) {
  Ranks ranks(3, 8, 1);
  ranks.call.timeout_nanoseconds = 100'000;
  // Ranks 0 and 1 of three.
  launch(ranks_of(2, 1), [&] { gt_all_reduce_one_shot_f32(ranks.peers, ranks.call); });
  check(*ranks.peers.error[0] == 3 && *ranks.peers.error[1] == 3, "error words ",
        *ranks.peers.error[0], " ", *ranks.peers.error[1]);
}

}  // namespace gt::testing
