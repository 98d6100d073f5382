// Messages between virtual ranks: pairs, rings, many chunks, a rank that does not arrive.
#include "cuda/exchange.h"

#include <memory>

#include "cuda/kernels.h"
#include "emulator/tests/check.h"

extern "C" {
void planted_full_box_gt_exchange_b32(gt::ExchangePeers, gt::ExchangeCall);
}

namespace gt::testing {
namespace {

using emulator::Buffer;
using emulator::FaultKind;
using emulator::launch;
using emulator::Launch;

constexpr unsigned kBlocks = 2;
constexpr std::int64_t kSlotElements = 40;

template <class T>
struct Post {
  Post(std::uint32_t ranks, std::size_t elements, std::uint32_t first_chunk = 1)
      : elements(elements) {
    call.ranks = ranks;
    call.slot_elements = kSlotElements;
    call.timeout_nanoseconds = 1'000'000'000;
    const auto words = [&](const char* name, std::size_t count, std::uint32_t value) {
      flags.push_back(
          std::make_unique<Buffer<std::uint32_t>>(name, std::vector<std::uint32_t>(count, value)));
      return flags.back()->data();
    };
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      inputs.push_back(std::make_unique<Buffer<T>>("input", values_of(rank)));
      outputs.push_back(std::make_unique<Buffer<T>>("output", elements));
      boxes.push_back(std::make_unique<Buffer<T>>("boxes", std::size_t{ranks} * 2 * kSlotElements));
      peers.input[rank] = inputs.back()->data();
      peers.output[rank] = outputs.back()->data();
      peers.boxes[rank] = reinterpret_cast<unsigned char*>(boxes.back()->data());
      peers.arrived[rank] = words("arrived", kBlocks * ranks, first_chunk - 1);
      peers.taken[rank] = words("taken", kBlocks * ranks, first_chunk - 1);
      peers.error[rank] = words("error", 1, 0);
      call.send[rank] =
          call.receive[rank] = {kNobody, first_chunk, static_cast<std::int64_t>(elements)};
    }
  }

  std::vector<T> values_of(std::uint32_t rank) const {
    std::vector<T> values;
    for (std::size_t i = 0; i < elements; ++i) {
      values.push_back(static_cast<T>(0x7F80U + 1000 * rank + i));
    }
    return values;
  }
  void message(std::uint32_t from, std::uint32_t to) {
    call.send[from].peer = to;
    call.receive[to].peer = from;
  }
  Launch grid(std::uint64_t seed, std::uint32_t playing) const {
    Launch wanted;
    wanted.grid = {kBlocks, playing, 1};
    wanted.block.x = 32;
    wanted.is_cooperative = true;
    wanted.seed = seed;
    return wanted;
  }
  void check_received(std::uint32_t from, std::uint32_t to) const {
    check_equal(outputs[to]->values(), values_of(from), "output");
    check(*peers.error[to] == 0, "error word ", *peers.error[to]);
  }

  std::size_t elements;
  ExchangePeers peers{};
  ExchangeCall call{};
  std::vector<std::unique_ptr<Buffer<T>>> inputs, outputs, boxes;
  std::vector<std::unique_ptr<Buffer<std::uint32_t>>> flags;
};

}  // namespace

TEST(exchange_sends_and_receives) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    // Messages of less than a chunk, and of five chunks and a part, whose numbers pass 2^32.
    Post<std::uint16_t> small(3, 7);
    small.message(2, 0);
    launch(small.grid(seed, 3), [&] { gt_exchange_b16(small.peers, small.call); });
    small.check_received(2, 0);
    Post<std::uint32_t> large(2, 5 * kSlotElements + 3, 0xFFFFFFFEU);
    large.message(0, 1);
    launch(large.grid(seed, 2), [&] { gt_exchange_b32(large.peers, large.call); });
    large.check_received(0, 1);
  }
}

TEST(exchange_goes_round_a_ring) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    Post<std::uint32_t> ring(4, 3 * kSlotElements + 1);
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      ring.message(rank, (rank + 1) % 4);
    }
    launch(ring.grid(seed, 4), [&] { gt_exchange_b32(ring.peers, ring.call); });
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      ring.check_received(rank, (rank + 1) % 4);
    }
  }
}

TEST(exchange_says_which_rank_did_not_come) {
  // Rank 1 never runs: a receive from it times out, and so does a send larger than its box.
  Post<std::uint32_t> waits(2, 7);
  waits.message(1, 0);
  waits.call.timeout_nanoseconds = 100'000;
  launch(waits.grid(1, 1), [&] { gt_exchange_b32(waits.peers, waits.call); });
  check(*waits.peers.error[0] == 2, "error word ", *waits.peers.error[0]);
  Post<std::uint32_t> sends(2, 3 * kSlotElements);
  sends.message(0, 1);
  sends.call.timeout_nanoseconds = 100'000;
  launch(sends.grid(1, 1), [&] { gt_exchange_b32(sends.peers, sends.call); });
  check(*sends.peers.error[0] == 2, "error word ", *sends.peers.error[0]);
}

TEST(planted_overrun_of_a_box_is_found) {
  bool is_found = false;
  for (std::uint64_t seed = 0; seed < 8 && !is_found; ++seed) {
    Post<std::uint32_t> post(2, 6 * kSlotElements);
    post.message(0, 1);
    try {
      launch(post.grid(seed, 2), [&] { planted_full_box_gt_exchange_b32(post.peers, post.call); });
    } catch (const emulator::Fault& fault) {
      check(fault.kind() == FaultKind::kRace, fault.what());
      is_found = true;
    }
  }
  check(is_found, "a sender that does not wait for its box was not found");
}

}  // namespace gt::testing
