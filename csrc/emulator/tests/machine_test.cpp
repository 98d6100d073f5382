// Wrappers against the PTX documentation, and a small kernel for each kind of fault.
#include <algorithm>
#include <limits>
#include <numeric>

#include "emulator/machine/banks.h"
#include "emulator/machine/place.h"
#include "emulator/tests/check.h"
#include "emulator/tests/small_kernels.h"

namespace gt::testing {
namespace {

using emulator::Buffer;
using emulator::FaultKind;
using emulator::launch;
using emulator::Launch;

std::vector<float> counted(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

Launch threads(unsigned block, unsigned grid = 1, std::uint64_t seed = 0) {
  Launch wanted;
  wanted.grid.x = grid;
  wanted.block.x = block;
  wanted.seed = seed;
  wanted.steps_max = 100'000;
  return wanted;
}

}  // namespace

TEST(out_of_bounds_is_found) {
  Buffer<float> x("x", counted(40));
  Buffer<float> out("out", 40);
  const auto fault =
      fault_of(threads(32, 2), [&] { copy_out_of_bounds(x.data(), out.data(), 40); });
  check_fault(fault, FaultKind::kOutOfBounds, "reads 4 bytes, 0 bytes behind x (160 bytes)");
  check_fault(fault, FaultKind::kOutOfBounds, "small_kernels.cpp:");
}

TEST(uninitialized_read_is_found) {
  Buffer<float> x("x", 32);
  Buffer<float> out("out", 32);
  check_fault(fault_of(threads(32), [&] { read_unwritten(x.data(), out.data()); }),
              FaultKind::kUninitialized, "4 bytes at x + 0 of 128");
}

TEST(two_writes_of_a_word_are_a_race) {
  Buffer<int> out("out", 1);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    check_fault(fault_of(threads(2, 1, seed), [&] { write_same_word(out.data()); }),
                FaultKind::kRace, "nothing orders the two");
  }
}

TEST(missing_barrier_is_a_race) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Buffer<float> x("x", counted(64));
    Buffer<float> out("out", 64);
    launch(threads(64, 1, seed), [&] { reverse_in_shared(x.data(), out.data(), true); });
    std::vector<float> expected = counted(64);
    std::reverse(expected.begin(), expected.end());
    check_equal(out.values(), expected, "reversed");
    const auto fault =
        fault_of(threads(64, 1, seed), [&] { reverse_in_shared(x.data(), out.data(), false); });
    check(fault.kind() == FaultKind::kRace || fault.kind() == FaultKind::kUninitialized,
          fault.what());
  }
}

TEST(deadlock_says_who_waits) {
  Buffer<int> out("out", 64);
  const auto fault = fault_of(threads(64), [&] { one_half_waits(out.data()); });
  check_fault(fault, FaultKind::kDeadlock, "threads 0-31 wait for barrier 0 of 64 threads");
  check_fault(fault, FaultKind::kDeadlock, "threads 32-63 have finished");
}

TEST(shuffle_of_absent_lanes_is_a_deadlock) {
  Buffer<unsigned> out("out", 32);
  check_fault(fault_of(threads(32), [&] { divergent_shuffle(out.data()); }), FaultKind::kDeadlock,
              "threads 0-15 wait for shfl.sync of the lanes of mask 0xffffffff");
}

// PTX ISA 9.7.9.6 shfl.sync: up takes lane - b unless that leaves the segment, down lane + b, bfly
// lane ^ b, idx lane b of the segment; a lane without a source keeps its own value.
TEST(shuffles_follow_the_table) {
  struct Row {
    unsigned kind, operand, width, lane, expected;
  };
  constexpr Row rows[] = {
      {0, 1, 32, 0, 0},   {0, 1, 32, 5, 4},    {0, 4, 8, 11, 11},  {0, 4, 8, 12, 8},
      {1, 1, 32, 31, 31}, {1, 16, 32, 3, 19},  {1, 4, 8, 11, 15},  {1, 4, 8, 12, 12},
      {2, 1, 32, 6, 7},   {2, 16, 32, 30, 14}, {2, 3, 4, 9, 10},   {2, 8, 8, 3, 3},
      {3, 7, 32, 20, 7},  {3, 2, 8, 19, 18},   {3, 0, 16, 31, 16},
  };
  for (const Row& row : rows) {
    Buffer<unsigned> out("out", 32);
    launch(threads(32), [&] { shuffles(out.data(), row.kind, row.operand, row.width); });
    check(out.data()[row.lane] == row.expected, "kind ", row.kind, ", operand ", row.operand,
          ", width ", row.width, ", lane ", row.lane, ": ", out.data()[row.lane], ", not ",
          row.expected);
  }
}

// PTX ISA 9.7.13.10 vote.sync: .ballot, .any, .all.
TEST(votes_follow_the_table) {
  for (const unsigned pattern : {0U, 1U, 0x80000000U, 0xF0F0F0F0U, 0xFFFFFFFFU}) {
    Buffer<unsigned> out("out", 3);
    launch(threads(32), [&] { ballots(out.data(), pattern); });
    check_equal(out.values(), {pattern, pattern != 0 ? 1U : 0U, pattern == 0xFFFFFFFFU ? 1U : 0U},
                "ballot, any, all");
  }
}

// PTX ISA 9.7.13.1 bar: bar.arrive does not wait; bar.sync waits for the given number of threads.
TEST(named_barriers_order_memory) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Buffer<unsigned> out("out", 32);
    launch(threads(64, 1, seed), [&] { named_barriers(out.data(), true); });
    check(out.data()[0] == 31 && out.data()[31] == 0, "seed ", seed);
  }
  Buffer<unsigned> out("out", 32);
  check_fault(fault_of(threads(64), [&] { named_barriers(out.data(), false); }),
              FaultKind::kDeadlock, "threads 32-63 wait for barrier 3 of 64 threads");
}

// PTX ISA 8: a release orders the accesses around it when an acquire of a wide enough scope reads
// it.
TEST(flags_order_memory_only_by_release_and_acquire) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (int mistake = 0; mistake < 4; ++mistake) {
      Buffer<float> x("x", std::vector<float>{42});
      Buffer<float> slot("slot", 1);
      Buffer<std::uint32_t> flag("flag", std::vector<std::uint32_t>{0});
      Buffer<float> out("out", 1);
      Launch wanted = threads(1, 2, seed);
      wanted.is_cooperative = true;
      const auto kernel = [&] {
        message_by_flag(x.data(), slot.data(), flag.data(), out.data(), mistake);
      };
      if (mistake == 0) {
        launch(wanted, kernel);
        check(out.data()[0] == 42, "got ", out.data()[0]);
      } else {
        check(fault_of(wanted, kernel).kind() == FaultKind::kRace, "mistake ", mistake);
      }
    }
  }
}

// PTX ISA 9.7.13.5 fence, and 8 (memory consistency model), release and acquire patterns: a fence
// before a relaxed store and one after the relaxed load that reads it order the accesses around
// them, where the scope of each includes the other's thread.
TEST(fences_order_memory_within_their_scope) {
  using emulator::Scope;
  constexpr Scope kNone = Scope::kPlain;
  struct Row {
    unsigned blocks;
    Scope before, after;
    bool is_ordered;
  };
  constexpr Row rows[] = {
      {2, Scope::kDevice, Scope::kDevice, true}, {2, Scope::kSystem, Scope::kDevice, true},
      {2, kNone, Scope::kDevice, false},         {2, Scope::kDevice, kNone, false},
      {2, Scope::kBlock, Scope::kDevice, false}, {2, Scope::kDevice, Scope::kBlock, false},
      {2, Scope::kBlock, Scope::kBlock, false},  {1, Scope::kBlock, Scope::kBlock, true},
      {1, Scope::kBlock, Scope::kSystem, true},  {1, Scope::kBlock, kNone, false},
      {1, kNone, Scope::kBlock, false},
  };
  for (const Row& row : rows) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      Buffer<float> x("x", std::vector<float>{42});
      Buffer<float> slot("slot", 1);
      Buffer<std::uint32_t> flag("flag", std::vector<std::uint32_t>{0});
      Buffer<float> out("out", 1);
      Launch wanted = threads(2 / row.blocks, row.blocks, seed);
      wanted.is_cooperative = true;
      const auto kernel = [&] {
        message_by_fences(x.data(), slot.data(), flag.data(), out.data(), row.before, row.after);
      };
      if (row.is_ordered) {
        launch(wanted, kernel);
        check(out.data()[0] == 42, "got ", out.data()[0]);
      } else {
        check_fault(fault_of(wanted, kernel), FaultKind::kRace, "4 bytes at slot + 0 of 4");
      }
    }
  }
}

// PTX ISA, Parallel Synchronization and Communication Instructions: atom returns the old value;
// .add is modulo 2^32; .acq_rel orders the accesses around it within its scope.
TEST(additions_order_memory_within_their_scope) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (const unsigned blocks : {1U, 2U}) {
      for (const bool reaches_device : {false, true}) {
        const unsigned all = 8 * blocks;
        Buffer<std::uint32_t> numbers("numbers", all), seen("seen", all), sum("sum", 1);
        Buffer<std::uint32_t> counter("counter", std::vector<std::uint32_t>{0U - 3});
        const auto kernel = [&] {
          arrivals(numbers.data(), counter.data(), seen.data(), sum.data(), reaches_device);
        };
        if (blocks == 2 && !reaches_device) {
          check_fault(fault_of(threads(8, 2, seed), kernel), FaultKind::kRace,
                      "4 bytes at counter + 0 of 4");
          continue;
        }
        launch(threads(8, blocks, seed), kernel);
        std::vector<std::uint32_t> expected(all), found = seen.values();
        std::iota(expected.begin(), expected.end(), 0U - 3);
        std::sort(found.begin(), found.end(), [](auto a, auto b) { return a + 3 < b + 3; });
        check_equal(found, expected, "seen");
        check(counter.data()[0] == all - 3, "counter ", counter.data()[0]);
        check(sum.data()[0] == all * (all + 1) / 2, "sum ", sum.data()[0]);
      }
    }
  }
}

// PTX ISA, Special Registers: %globaltimer is one clock for all blocks, which advances whatever a
// thread does.
TEST(time_goes_on_for_all_blocks) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Buffer<std::uint64_t> times("times", 2);
    Buffer<std::uint32_t> flag("flag", std::vector<std::uint32_t>{0});
    Launch wanted = threads(1, 2, seed);
    wanted.is_cooperative = true;
    launch(wanted, [&] { times_of_two_blocks(times.data(), flag.data()); });
    check(times.data()[0] <= times.data()[1], times.data()[0], " before ", times.data()[1]);
    Buffer<std::uint64_t> waited("waited", 2);
    launch(threads(2, 1, seed), [&] { wait_by_the_time(10'000, waited.data()); });
    for (const std::uint64_t each : waited.values()) {
      check(each >= 10'000 && each < 20'000, "waited ", each);
    }
  }
}

// PTX ISA, Floating Point Instructions: ex2 and its table of special operands; .ftz flushes
// subnormal operands and results to zero; the relative error is at most 2^-22.
TEST(powers_of_2_follow_the_table) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto power = [](float operand) {
    Buffer<float> x("x", std::vector<float>{operand});
    Buffer<float> out("out", 1);
    launch(threads(1), [&] { powers_of_2(x.data(), out.data()); });
    return out.data()[0];
  };
  struct Row {
    float operand, expected;
  };
  constexpr Row rows[] = {
      {-kInfinity, 0},  {kInfinity, kInfinity}, {0.0F, 1},    {-0.0F, 1}, {0x1p-149F, 1},
      {-0x1p-149F, 1},  {-126, 0x1p-126F},      {-126.5F, 0}, {-149, 0},  {-1000, 0},
      {128, kInfinity}, {127, 0x1p127F},        {-3, 0.125F}, {10, 1024},
  };
  for (const Row& row : rows) {
    const float got = power(row.operand);
    check(got == row.expected && !std::signbit(got), "2^", row.operand, ": ", got, ", not ",
          row.expected);
  }
  check(std::isnan(power(std::nanf(""))), "of no number");
  for (float x = -125.9F; x < 127; x += 3.7F) {
    const double expected = std::exp2(double{x});
    check(std::abs(double{power(x)} - expected) <= expected * 0x1p-22, "2^", x, ": ", power(x));
  }
}

// PTX ISA, Parallel Synchronization and Communication Instructions: atom has no write of another
// thread between its read and its write.
TEST(atomic_sums_lose_nothing) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Buffer<float> x("x", counted(128));
    Buffer<float> sum("sum", std::vector<float>{0});
    launch(threads(32, 4, seed), [&] { sum_by_atomics(x.data(), sum.data()); });
    check(sum.data()[0] == 8256, "sum ", sum.data()[0]);
  }
}

// PTX ISA 9.7.9.25.3 cp.async: src-size bytes are read, the rest is zero; the data is not there
// before the wait.
TEST(asynchronous_copies_arrive_at_the_wait) {
  Buffer<float> x("x", counted(128));
  Buffer<float> out("out", 128);
  launch(threads(32), [&] { copies(x.data(), out.data(), 16, true); });
  check_equal(out.values(), counted(128), "copied");
  launch(threads(32), [&] { copies(x.data(), out.data(), 8, true); });
  check(out.data()[1] == 2 && out.data()[2] == 0 && out.data()[3] == 0, "zero fill");
  check_fault(fault_of(threads(32), [&] { copies(x.data(), out.data(), 16, false); }),
              FaultKind::kInFlight, "shared memory of block 0 + 0");
}

// PTX ISA 9.7.9.25.3.3 cp.async.wait_group N: all but the N newest groups are complete.
TEST(wait_group_leaves_the_newest_groups) {
  Buffer<float> x("x", counted(2));
  Buffer<float> out("out", 2);
  launch(threads(1), [&] { two_stage_copies(x.data(), out.data(), true); });
  check_equal(out.values(), counted(2), "copied");
  check_fault(fault_of(threads(1), [&] { two_stage_copies(x.data(), out.data(), false); }),
              FaultKind::kInFlight, "+ 4 of");
}

// PTX ISA 9.7.13.15 mbarrier: a wait passes for the parity of a complete phase.
TEST(ring_of_mbarriers) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Buffer<float> x("x", counted(9));
    Buffer<float> out("out", 9);
    launch(threads(64, 1, seed), [&] { ring(x.data(), out.data(), 9, 0); });
    check_equal(out.values(), counted(9), "passed on");
    const auto fault = fault_of(threads(64, 1, seed), [&] { ring(x.data(), out.data(), 9, 1); });
    check_fault(fault, FaultKind::kDeadlock, "parity 0 (it is in phase 0, 1 of 1 arrivals");
  }
}

// PTX ISA 9.7.13.15.5: a phase completes when pending arrivals and tx-count are zero.
TEST(transactions_end_a_phase) {
  Buffer<unsigned> order("order", 4);
  launch(threads(32), [&] { transactions(order.data()); });
  check_equal(order.values(), {0U, 0U, 1U, 0U}, "test_wait");
}

// CUDA C++ Programming Guide, shared memory: 32 banks of successive 32-bit words.
TEST(bank_conflicts_are_counted) {
  struct Row {
    unsigned stride;
    std::uint64_t conflicts;  // for one access
  };
  for (const Row& row : {Row{1, 0}, Row{2, 1}, Row{4, 3}, Row{8, 7}, Row{16, 15}, Row{32, 31},
                         Row{3, 0}, Row{31, 0}}) {
    Buffer<float> out("out", 32);
    const auto statistics = launch(threads(32), [&] { stride_in_shared(out.data(), row.stride); });
    check(statistics.bank_conflicts == 2 * row.conflicts, "stride ", row.stride, ": ",
          statistics.bank_conflicts);
  }
  // 16-byte accesses go by quarter warps: consecutive ones have no conflict.
  std::vector<std::pair<unsigned, std::uintptr_t>> lanes;
  for (unsigned lane = 0; lane < 32; ++lane) {
    lanes.emplace_back(lane, 16 * lane);
  }
  check(emulator::bank_conflicts(lanes, 16) == 0, "successive 16-byte accesses");
}

TEST(bank_conflicts_are_told_apart_by_instruction) {
  const auto conflicts = [](unsigned first, unsigned second) {
    Buffer<float> out("out", 64);
    const auto statistics =
        launch(threads(32), [&] { two_strides_in_shared(out.data(), first, second); });
    std::uint64_t all = 0;
    for (const auto& [place, count] : statistics.conflict_places) {
      all += count;
      check(emulator::place_name(place).find("small_kernels.cpp:") != std::string::npos,
            "conflicts at ", emulator::place_name(place));
    }
    check(all == statistics.bank_conflicts, all, " by instruction, ", statistics.bank_conflicts);
    return statistics.conflict_places;
  };
  const auto both = conflicts(2, 8), turned = conflicts(8, 2), one = conflicts(1, 4);
  check(both.size() == 2 && turned.size() == 2 && one.size() == 1, both.size(), ", ", turned.size(),
        " and ", one.size(), " instructions");
  const auto [second, count] = *one.begin();
  const auto first = both.begin()->first == second ? both.rbegin()->first : both.begin()->first;
  check(count == 3, "stride 4: ", count);
  check(both.at(first) == 1 && both.at(second) == 7, "strides 2 and 8: ", both.at(first), " and ",
        both.at(second));
  check(turned.at(first) == 7 && turned.at(second) == 1, "strides 8 and 2: ", turned.at(first),
        " and ", turned.at(second));
}

TEST(same_seed_same_schedule) {
  const auto steps = [](std::uint64_t seed) {
    Buffer<float> x("x", counted(64));
    Buffer<float> out("out", 64);
    return launch(threads(64, 1, seed), [&] { reverse_in_shared(x.data(), out.data(), true); })
        .steps;
  };
  check(steps(7) == steps(7), "seed 7");
  check(steps(7) != steps(8), "seeds 7 and 8 give the same number of steps");
}

}  // namespace gt::testing
