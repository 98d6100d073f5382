// Collectives with virtual ranks: bits, several calls in a row, a rank that does not arrive.
#include "cuda/all_reduce.h"

#include "cuda/gather.h"
#include "cuda/kernels.h"
#include "emulator/machine/instructions.h"
#include "emulator/tests/virtual_ranks.h"

namespace gt::testing {

void repeated_collectives(CollectivePeers peers, CollectiveCall call, std::uint32_t calls,
                          std::uint32_t* done);

namespace {

using emulator::launch;

using Kernel = void (*)(CollectivePeers, CollectiveCall);

template <class T>
using Inputs = std::vector<std::vector<T>>;

// Numbers whose sum depends on the order of additions.
template <class Element>
Inputs<typename Element::Stored> numbers(std::uint32_t ranks, std::size_t elements) {
  Inputs<typename Element::Stored> made(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < elements; ++i) {
      const float scale = static_cast<float>(1U << 4 * rank % 12);
      made[rank].push_back(Element::narrow(0.1F * static_cast<float>(i + 1) * scale));
    }
  }
  return made;
}

// Sums in the order of the ranks, rounded once.
template <class Element>
std::vector<typename Element::Stored> summed(const Inputs<typename Element::Stored>& inputs) {
  std::vector<typename Element::Stored> made;
  for (std::size_t i = 0; i < inputs[0].size(); ++i) {
    float sum = Element::wide(inputs[0][i]);
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
      sum += Element::wide(inputs[rank][i]);
    }
    made.push_back(Element::narrow(sum));
  }
  return made;
}

template <class T>
std::vector<T> part(const std::vector<T>& all, std::size_t index, std::size_t elements) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(index * elements);
  return {begin, begin + static_cast<std::ptrdiff_t>(elements)};
}

template <class Element>
void check_all_reduce(Kernel one_shot, Kernel two_shot, std::uint32_t ranks, std::size_t elements,
                      std::uint64_t seed) {
  using T = typename Element::Stored;
  const Inputs<T> inputs = numbers<Element>(ranks, elements);
  for (const Kernel kernel : {one_shot, two_shot}) {
    VirtualRanks<T> all(inputs, elements, (kernel == one_shot ? 1 : 2) * elements,
                        static_cast<std::int64_t>(elements));
    launch(all.launch(seed), [&] { kernel(all.peers, all.call); });
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      all.check_output(rank, summed<Element>(inputs));
    }
  }
}

template <class Element>
void check_reduce_scatter(Kernel kernel, std::uint32_t ranks, std::size_t elements,
                          std::uint64_t seed) {
  using T = typename Element::Stored;
  const Inputs<T> inputs = numbers<Element>(ranks, ranks * elements);
  VirtualRanks<T> all(inputs, elements, ranks * elements, static_cast<std::int64_t>(elements));
  launch(all.launch(seed), [&] { kernel(all.peers, all.call); });
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    all.check_output(rank, part(summed<Element>(inputs), rank, elements));
  }
}

template <class T>
void check_moves(Kernel gather, Kernel broadcast, std::uint32_t ranks, std::size_t elements,
                 std::uint64_t seed) {
  Inputs<T> inputs(ranks);
  std::vector<T> joined;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < elements; ++i) {
      inputs[rank].push_back(static_cast<T>(0x7F80U + 1000 * rank + i));  // NaN among them
      joined.push_back(inputs[rank].back());
    }
  }
  const auto count = static_cast<std::int64_t>(elements);
  VirtualRanks<T> gathered(inputs, ranks * elements, elements, count);
  launch(gathered.launch(seed), [&] { gather(gathered.peers, gathered.call); });
  VirtualRanks<T> sent(inputs, elements, elements, count);
  sent.call.root = ranks - 1;
  launch(sent.launch(seed), [&] { broadcast(sent.peers, sent.call); });
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    gathered.check_output(rank, joined);
    sent.check_output(rank, inputs[ranks - 1]);
  }
}

}  // namespace

TEST(all_reduce_is_bit_equal_on_all_ranks) {
  for (const std::uint32_t ranks : {1U, 2U, 3U}) {
    for (const std::size_t elements : {1U, 67U}) {
      for (std::uint64_t seed = 0; seed < 3; ++seed) {
        check_all_reduce<Float32>(gt_all_reduce_one_shot_f32, gt_all_reduce_two_shot_f32, ranks,
                                  elements, seed);
      }
      check_all_reduce<Bfloat16>(gt_all_reduce_one_shot_bf16, gt_all_reduce_two_shot_bf16, ranks,
                                 elements, ranks);
      check_all_reduce<Float16>(gt_all_reduce_one_shot_f16, gt_all_reduce_two_shot_f16, ranks,
                                elements, ranks);
    }
  }
}

TEST(reduce_scatter_gives_each_rank_its_part_of_the_sum) {
  for (const std::uint32_t ranks : {1U, 2U, 4U}) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      check_reduce_scatter<Float32>(gt_reduce_scatter_f32, ranks, 35, seed);
    }
    check_reduce_scatter<Bfloat16>(gt_reduce_scatter_bf16, ranks, 1, 1);
    check_reduce_scatter<Float16>(gt_reduce_scatter_f16, ranks, 66, 2);
  }
}

TEST(all_gather_and_broadcast_move_the_bits) {
  for (const std::uint32_t ranks : {1U, 2U, 4U}) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      check_moves<std::uint32_t>(gt_all_gather_b32, gt_broadcast_b32, ranks, 67, seed);
      check_moves<std::uint16_t>(gt_all_gather_b16, gt_broadcast_b16, ranks, 1 + 65 * (seed % 2),
                                 seed);
    }
  }
}

TEST(collectives_follow_each_other) {
  constexpr std::size_t kElements = 34;
  const Inputs<float> inputs = numbers<Float32>(2, kElements);
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    for (const std::uint32_t calls : {7U, 8U, 9U, 10U}) {
      // The numbers of calls pass 2^31, and those of barriers 2^32.
      VirtualRanks<float> all(inputs, kElements, 2 * kElements, kElements, 0x7FFFFFFCU);
      emulator::Buffer<std::uint32_t> done("done", std::vector<std::uint32_t>(2));
      launch(all.launch(seed),
             [&] { repeated_collectives(all.peers, all.call, calls, done.data()); });
      std::vector<float> expected = summed<Float32>(inputs);
      for (std::uint32_t rank = 0; rank < 2; ++rank) {
        std::vector<float> last = expected;  // 7: from the previous two-shot call
        if (calls == 8) {
          const std::vector<float> mine = part(expected, rank, kElements / 2);
          std::copy(mine.begin(), mine.end(), last.begin());
        } else if (calls == 9) {
          last = part(inputs[0], 0, kElements / 2);
          const std::vector<float> other = part(inputs[1], 0, kElements / 2);
          last.insert(last.end(), other.begin(), other.end());
        } else if (calls == 10) {
          last = inputs[1];
        }
        all.check_output(rank, last);
      }
    }
  }
}

TEST(collectives_say_which_rank_did_not_come) {
  const Inputs<float> inputs = numbers<Float32>(3, 24);
  for (const Kernel kernel : {gt_all_reduce_one_shot_f32, gt_all_reduce_two_shot_f32,
                              gt_reduce_scatter_f32, gt_all_gather_b32, gt_broadcast_b32}) {
    VirtualRanks<float> all(inputs, 24, 48, 8);
    all.call.timeout_nanoseconds = 100'000;
    // Runs ranks 0 and 1 of three.
    launch(all.launch(1, 2), [&] { kernel(all.peers, all.call); });
    all.check_errors(2, 2);
  }
}

// A rank with possibly wrong memory contributes nothing: the others see that it does not arrive.
TEST(collectives_do_without_a_rank_that_has_had_an_error) {
  const Inputs<float> inputs = numbers<Float32>(3, 24);
  for (const Kernel kernel : {gt_all_reduce_one_shot_f32, gt_all_reduce_two_shot_f32,
                              gt_reduce_scatter_f32, gt_all_gather_b32, gt_broadcast_b32}) {
    for (const std::uint32_t word : {0U, 1U}) {  // its own error, and one that it read from another
      VirtualRanks<float> all(inputs, 24, 48, 8);
      all.call.timeout_nanoseconds = 100'000;
      all.call.error_base = 40;
      all.peers.error[2][word] = 7;
      launch(all.launch(1), [&] { kernel(all.peers, all.call); });
      all.check_errors(2, 42);
      check(all.peers.error[2][word] == 7, "error word ", all.peers.error[2][word]);
      check(all.peers.error[2][1 - word] == 0, "error word ", all.peers.error[2][1 - word]);
    }
  }
}

}  // namespace gt::testing
