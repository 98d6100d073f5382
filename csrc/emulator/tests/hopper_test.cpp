// Clusters, tensor copies and products of four warps against tables written from the PTX
// documentation, and one mistake of each kind.
#include <numeric>
#include <optional>

#include "emulator/machine/instructions.h"
#include "emulator/machine/tensor_map.h"
#include "emulator/tests/check.h"
#include "emulator/tests/hopper_kernels.h"

namespace gt::testing {
namespace {

using emulator::Buffer;
using emulator::FaultKind;
using emulator::Half;
using emulator::launch;
using emulator::Launch;
using emulator::TensorFacts;

Launch cluster_of_two(unsigned threads, std::uint64_t seed = 0) {
  Launch wanted;
  wanted.grid.x = 2;
  wanted.cluster.x = 2;
  wanted.block.x = threads;
  wanted.shared_bytes = 16384;
  wanted.seed = seed;
  wanted.steps_max = 100'000;
  return wanted;
}

// A tensor [depth][height][width] of 16 bits, each element its index; rows have 8 elements of
// padding.
struct Numbered {
  Numbered(std::uint64_t width, std::uint64_t height, std::uint64_t depth)
      : width(width), height(height), depth(depth), step(width + 8) {
    std::vector<std::uint16_t> values(step * height * depth);
    std::iota(values.begin(), values.end(), std::uint16_t{1});
    buffer.emplace("tensor", values);
  }

  TensorFacts facts(std::uint32_t swizzle, std::uint32_t x, std::uint32_t y, std::uint32_t z) {
    TensorFacts made;
    made.address = reinterpret_cast<std::uintptr_t>(buffer->data());
    made.dims = z == 0 ? 2 : 3;
    made.element_bytes = 2;
    made.swizzle_bytes = swizzle;
    const std::uint64_t sizes[] = {width, height, depth};
    const std::uint64_t strides[] = {2, 2 * step, 2 * step * height};
    const std::uint32_t box[] = {x, y, z};
    for (std::uint32_t dim = 0; dim < made.dims; ++dim) {
      made.sizes[dim] = sizes[dim];
      made.strides[dim] = strides[dim];
      made.box[dim] = box[dim];
    }
    return made;
  }

  // Expected element; 0 outside the tensor.
  std::uint16_t at(std::int64_t x, std::int64_t y, std::int64_t z) const {
    const auto inside = [](std::int64_t i, std::uint64_t size) {
      return i >= 0 && i < static_cast<std::int64_t>(size);
    };
    const bool is_inside = inside(x, width) && inside(y, height) && inside(z, depth);
    const auto place = static_cast<std::size_t>(
        (z * static_cast<std::int64_t>(height) + y) * static_cast<std::int64_t>(step) + x);
    return is_inside ? static_cast<std::uint16_t>(place + 1) : std::uint16_t{0};
  }

  std::uint64_t width, height, depth, step;
  std::optional<Buffer<std::uint16_t>> buffer;
};

}  // namespace

// PTX ISA, Data Movement and Conversion Instructions: mapa; Parallel Synchronization and
// Communication Instructions: barrier.cluster. Blocks read each other's shared memory; the barrier
// releases and acquires.
TEST(blocks_of_a_cluster_see_each_other) {
  bool ends_early = false;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Buffer<unsigned> out("out", 64);
    launch(cluster_of_two(32, seed), [&] { cluster_exchange(out.data(), 0); });
    check(out.data()[5] == 105 && out.data()[32 + 5] == 5, "seed ", seed);
    const auto fault = fault_of(cluster_of_two(32, seed), [&] { cluster_exchange(out.data(), 1); });
    check(fault.kind() == FaultKind::kRace || fault.kind() == FaultKind::kUninitialized,
          fault.what());
    try {
      launch(cluster_of_two(32, seed), [&] { cluster_exchange(out.data(), 2); });
    } catch (const emulator::Fault& early) {
      check_fault(early, FaultKind::kOutOfBounds, "which has ended");
      ends_early = true;
    }
  }
  check(ends_early, "a block that ends before it is read was not found");
  Launch alone = cluster_of_two(32);
  alone.cluster.x = 1;
  Buffer<unsigned> out("out", 64);
  check_fault(fault_of(alone, [&] { cluster_exchange(out.data(), 0); }), FaultKind::kMisuse,
              "mapa: rank 1 in a cluster of 1 blocks");
}

// PTX ISA 9.7.13.15 mbarrier: mbarrier.arrive and mbarrier.try_wait have .cta scope unless .cluster
// is given.
TEST(arrivals_from_another_block_need_the_clusters_scope) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Buffer<float> x("x", std::vector<float>{42});
    Buffer<float> out("out", 1);
    launch(cluster_of_two(1, seed), [&] { remote_arrival(x.data(), out.data(), true); });
    check(out.data()[0] == 42, "got ", out.data()[0]);
    check_fault(
        fault_of(cluster_of_two(1, seed), [&] { remote_arrival(x.data(), out.data(), false); }),
        FaultKind::kRace, "nothing orders the two");
  }
}

// PTX ISA 5.5.7 (swizzling modes): chunk c of 16 bytes in row r goes to c ^ r with 128 bytes, to c
// ^ r / 2 with 64, to c ^ r / 4 with 32, modulo the number of chunks.
TEST(boxes_are_swizzled_as_the_table_says) {
  struct Row {
    std::uint32_t swizzle, width;  // elements of a row of the box
    unsigned row, chunk, expected_chunk;
  };
  constexpr Row rows[] = {
      {0, 64, 5, 3, 3},   {128, 64, 0, 6, 6}, {128, 64, 1, 6, 7}, {128, 64, 5, 3, 6},
      {128, 64, 7, 7, 0}, {128, 64, 9, 2, 3}, {64, 32, 1, 2, 2},  {64, 32, 2, 2, 3},
      {64, 32, 7, 1, 2},  {64, 32, 8, 1, 1},  {32, 16, 3, 1, 1},  {32, 16, 4, 1, 0},
      {32, 16, 7, 0, 1},  {32, 16, 9, 0, 0},
  };
  for (const Row& row : rows) {
    for (const std::uint64_t seed : {0, 1}) {
      Numbered source(80, 12, 1);
      const unsigned elements = row.width * 12;
      Buffer<std::uint16_t> out("out", 2 * elements);
      const TensorMap map = emulator::encode(source.facts(row.swizzle, row.width, 12, 0));
      const BoxCopy copy{{8, 0, 0}, 2, elements, 2 * elements, 0};
      launch(cluster_of_two(32, seed), [&] { copied_box(map, out.data(), copy, 0); });
      const auto at = row.row * row.width + row.expected_chunk * 8;
      check(out.data()[at] == source.at(8 + row.chunk * 8, row.row, 0), "swizzle ", row.swizzle,
            ", row ", row.row, ", chunk ", row.chunk, ": ", out.data()[at]);
    }
  }
}

// PTX ISA 5.5.3.3 (out-of-boundary access): elements outside are zeros, and all bytes of the box
// count.
TEST(boxes_beyond_a_tensor_are_zero_there) {
  constexpr std::int32_t places[][3] = {{-8, -1, 0}, {16, 3, 1}, {0, 0, -1}, {8, 2, 2}};
  for (const auto& place : places) {
    Numbered source(24, 5, 3);
    Buffer<std::uint16_t> out("out", 2 * 16 * 4 * 2);
    const TensorMap map = emulator::encode(source.facts(0, 16, 4, 2));
    const BoxCopy copy{{place[0], place[1], place[2]}, 3, 128, 256, 0};
    launch(cluster_of_two(32, 3), [&] { copied_box(map, out.data(), copy, 0); });
    for (int i = 0; i < 128; ++i) {
      const auto expected = source.at(place[0] + i % 16, place[1] + i / 16 % 4, place[2] + i / 64);
      check(out.data()[i] == expected, "element ", i, ": ", out.data()[i], ", not ", expected);
    }
  }
}

// PTX ISA, Data Movement and Conversion Instructions: cp.async.bulk.tensor with .multicast::cluster
// copies to the same address in each block of the mask, and signals the mbarrier at the same
// address there.
TEST(one_copy_reaches_the_blocks_of_its_mask) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Numbered source(64, 8, 2);
    Buffer<std::uint16_t> out("out", 2 * 512);
    const TensorMap map = emulator::encode(source.facts(0, 64, 8, 1));
    launch(cluster_of_two(32, seed),
           [&] { copied_box(map, out.data(), {{0, 0, 1}, 3, 512, 1024, 3}, 0); });
    for (unsigned block = 0; block < 2; ++block) {
      check(out.data()[512 * block + 70] == source.at(6, 1, 1), "block ", block);
    }
    // Copied to block 0 alone: block 1 waits forever.
    const auto fault = fault_of(cluster_of_two(32, seed), [&] {
      copied_box(map, out.data(), {{0, 0, 1}, 3, 512, 1024, 1}, 0);
    });
    check_fault(fault, FaultKind::kDeadlock,
                "parity 0 (it is in phase 0, 0 of 1 arrivals and 1024 bytes pending)");
  }
}

// PTX ISA, Data Movement and Conversion Instructions: prefetch .tensormap brings the map into a
// cache, and neither reads nor writes memory as the program sees it.
TEST(prefetched_maps_change_nothing) {
  const auto accesses = [](bool prefetches, std::uint64_t seed) {
    Numbered source(64, 8, 1);
    Buffer<std::uint16_t> out("out", 2 * 512);
    const TensorMap map = emulator::encode(source.facts(0, 64, 8, 0));
    const BoxCopy copy{{0, 1, 0}, 2, 512, 1024, 0, prefetches};
    const auto statistics =
        launch(cluster_of_two(32, seed), [&] { copied_box(map, out.data(), copy, 0); });
    for (int i = 0; i < 1024; ++i) {
      const auto expected = source.at(i % 64, 1 + i / 64 % 8, 0);
      check(out.data()[i] == expected, "element ", i, ": ", out.data()[i], ", not ", expected);
    }
    return statistics.accesses;
  };
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    check(accesses(true, seed) == accesses(false, seed), "a prefetch is counted as an access");
    Launch wanted;
    wanted.block.x = 2;
    wanted.seed = seed;
    Buffer<TensorMap> written("written", 1);
    launch(wanted, [&] { prefetch_beside_a_write(written.data()); });
  }
}

// PTX ISA, Data Movement and Conversion Instructions: st .v2 stores two adjacent elements in one
// access, aligned to its 8 bytes.
TEST(pairs_are_stored_as_one_access) {
  Launch wanted;
  wanted.block.x = 32;
  wanted.shared_bytes = 512;
  Buffer<float> out("out", 64);
  const auto statistics = launch(wanted, [&] { stored_pairs(out.data(), 0); });
  std::vector<float> expected(64);
  std::iota(expected.begin(), expected.end(), 0.0F);
  check_equal(out.values(), expected, "pairs");
  // Two accesses of 4 bytes, 8 bytes apart, would conflict on every other bank.
  check(statistics.bank_conflicts == 0, statistics.bank_conflicts, " bank conflicts");
  check_fault(fault_of(wanted, [&] { stored_pairs(out.data(), 4); }), FaultKind::kMisaligned,
              "8 bytes at shared memory of block 0 + 4 of 512");
}

// PTX ISA 8.6 (proxies): a fence.proxy.async is needed between a thread's write and the copy's use.
// 9.7.13.15 mbarrier: the phase of a wait; 9.7.13.15.5: a phase ends when no bytes are pending.
TEST(mistakes_around_a_tensor_copy_are_found) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Numbered source(64, 8, 1);
    Buffer<std::uint16_t> out("out", 2 * 512);
    const TensorMap map = emulator::encode(source.facts(128, 64, 8, 0));
    const auto fault = [&](unsigned bytes, int mistake) {
      return fault_of(cluster_of_two(32, seed),
                      [&] { copied_box(map, out.data(), {{0, 0, 0}, 2, 512, bytes, 0}, mistake); });
    };
    check_fault(fault(1024, 1), FaultKind::kRace, "no fence.proxy.async stands between");
    const auto early = fault(1024, 2);
    check(early.kind() == FaultKind::kInFlight || early.kind() == FaultKind::kRace ||
              early.kind() == FaultKind::kUninitialized,
          early.what());
    check_fault(fault(1040, 0), FaultKind::kDeadlock, "0 of 1 arrivals and 16 bytes pending");
    check_fault(fault(1008, 0), FaultKind::kDeadlock, "0 of 1 arrivals and -16 bytes pending");
    TensorMap other{};
    check_fault(fault_of(cluster_of_two(32, seed),
                         [&] { copied_box(other, out.data(), {{0, 0, 0}, 2, 512, 1024, 0}, 0); }),
                FaultKind::kMisuse, "no tensor map");
  }
}

// CUDA driver API, cuTensorMapEncodeTiled: the documented errors.
TEST(tensor_maps_are_refused_as_the_driver_does) {
  Numbered source(64, 8, 2);
  const auto refused = [&](const std::function<void(TensorFacts&)>& change) {
    TensorFacts facts = source.facts(128, 64, 8, 1);
    change(facts);
    return emulator::refusal(facts);
  };
  const auto has = [](const std::string& text, const char* part) {
    check(text.find(part) != std::string::npos, "'", text, "' without '", part, "'");
  };
  check(refused([](TensorFacts&) {}).empty(), "a right map is refused");
  has(refused([](TensorFacts& facts) { facts.address += 8; }), "multiple of 16");
  has(refused([](TensorFacts& facts) { facts.strides[1] += 8; }), "stride 152 of dim 1");
  // Interleaved heads are accepted: [b, t, h, d] viewed as [b, h, t, d].
  check(refused([](TensorFacts& facts) { facts.strides[2] = 16; }).empty(), "a stride is refused");
  has(refused([](TensorFacts& facts) { facts.sizes[1] = 0; }), "size 0 of dim 1");
  has(refused([](TensorFacts& facts) { facts.box[1] = 257; }), "box 257 of dim 1");
  has(refused([](TensorFacts& facts) { facts.box[0] = 72; }), "rows of 144 bytes");
  has(refused([](TensorFacts& facts) { facts.dims = 6; }), "6 dims");
}

// PTX ISA, Miscellaneous Instructions: setmaxnreg. .inc takes registers that .dec released. Two
// warpgroups of 128 threads start with 136 registers a thread.
TEST(registers_are_a_budget) {
  Launch wanted;
  wanted.block.x = 256;
  wanted.registers = 136;
  Buffer<unsigned> out("out", 256);
  launch(wanted, [&] { trade_registers(out.data(), true); });
  check_fault(fault_of(wanted, [&] { trade_registers(out.data(), false); }), FaultKind::kDeadlock,
              "setmaxnreg.inc 232 with 0 registers free");
  wanted.registers = 240;
  check_fault(fault_of(wanted, [&] { trade_registers(out.data(), true); }), FaultKind::kMisuse,
              "setmaxnreg.inc 232 where a thread has 240");
}

namespace {

// PTX ISA 9.7.15.5.1.2.1.3, canonical layouts of 16-bit elements (T = 8): strides, in elements, of
// (8 along the depth or across, the swizzle's other chunks, patterns).
struct Canonical {
  unsigned swizzle;
  bool is_turned;
  unsigned leading, stride;  // bytes, for operands of `across` up to 128

  // Index of an element, before the swizzle.
  unsigned at(unsigned across, unsigned depth) const {
    const unsigned lbo = leading / 2, sbo = stride / 2, t = 8;
    if (!is_turned) {
      switch (swizzle) {  // ((8, m), (T, 2k))
        case 0:
          return across % 8 * t + across / 8 * sbo + depth % 8 + depth / 8 * lbo;
        case 32:
          return across % 8 * 2 * t + across / 8 * sbo + depth % 8 + depth / 8 * t;
        case 64:
          return across % 8 * 4 * t + across / 8 * sbo + depth % 8 + depth / 8 * t;
        default:
          return across % 8 * 8 * t + across / 8 * sbo + depth % 8 + depth / 8 * t;
      }
    }
    switch (swizzle) {  // ((T, n, m), (8, k))
      case 0:
        return across % 8 + across / 8 * sbo + depth % 8 * t + depth / 8 * lbo;
      case 32:
        return across % 16 + across / 16 * lbo + depth % 8 * 2 * t + depth / 8 * sbo;
      case 64:
        return across % 32 + across / 32 * lbo + depth % 8 * 4 * t + depth / 8 * sbo;
      default:
        return across % 64 + across / 64 * lbo + depth % 8 * 8 * t + depth / 8 * sbo;
    }
  }
  // Applies Swizzle<B, 4, 3> to the byte offset: xors bits from 7 on into bits from 4 on.
  unsigned swizzled(unsigned element) const {
    const unsigned bits = swizzle == 128 ? 7 : swizzle == 64 ? 3 : swizzle == 32 ? 1 : 0;
    return (2 * element ^ (2 * element >> 7 & bits) << 4) / 2;
  }
};

constexpr Canonical kCanonical[] = {
    {0, false, 128, 256}, {32, false, 16, 256},  {64, false, 16, 512},  {128, false, 16, 1024},
    {0, true, 2048, 128}, {32, true, 256, 2048}, {64, true, 512, 2048}, {128, true, 2048, 1024},
};

float value_a(unsigned row, unsigned k) { return static_cast<float>((row * 7 + k * 3) % 13) - 6; }
float value_b(unsigned k, unsigned column) {
  return (static_cast<float>((k * 5 + column * 11) % 9) - 4) / 2;
}

std::vector<std::uint16_t> image_of(const Canonical& layout, Half type, unsigned extent,
                                    bool is_b) {
  std::vector<std::uint16_t> image(kImageElements, 0x7FFF);  // NaN where no element is
  for (unsigned across = 0; across < extent; ++across) {
    for (unsigned k = 0; k < 16; ++k) {
      const float value = is_b ? value_b(k, across) : value_a(across, k);
      image[layout.swizzled(layout.at(across, k))] = emulator::from_float(type, value);
    }
  }
  return image;
}

// PTX ISA 9.7.15.5.1.1.1, fragment of D: d0, d1 in row 16 w + l / 4, columns 2 (l % 4) and 2 (l %
// 4) + 1; d2, d3 8 rows below; d4 on the same rows 8 columns further.
void check_registers(const std::vector<float>& registers, unsigned columns, float factor) {
  for (unsigned thread = 0; thread < 128; ++thread) {
    for (unsigned i = 0; i < columns / 2; ++i) {
      const unsigned row = 16 * (thread / 32) + thread % 32 / 4 + (i % 4 >= 2 ? 8 : 0);
      const unsigned column = 8 * (i / 4) + 2 * (thread % 4) + i % 2;
      double expected = 0;
      for (unsigned k = 0; k < 16; ++k) {
        expected += double{value_a(row, k)} * double{value_b(k, column)};
      }
      const std::size_t at = std::size_t{thread} * (columns / 2) + i;
      check_close(registers[at], expected * double{factor}, 0, "sums", at);
    }
  }
}

Launch warpgroup(std::uint64_t seed = 0) {
  Launch wanted;
  wanted.block.x = 128;
  wanted.shared_bytes = 2 * 2 * kImageElements;
  wanted.seed = seed;
  return wanted;
}

ProductCase case_of(const Canonical& a, const Canonical& b) {
  return {a.swizzle, a.is_turned, b.is_turned, a.leading, a.stride, b.leading, b.stride};
}

}  // namespace

TEST(products_of_four_warps_follow_the_canonical_layouts) {
  for (const Canonical& a : kCanonical) {
    for (const Canonical& b : kCanonical) {
      if (a.swizzle != b.swizzle) {
        continue;
      }
      Buffer<std::uint16_t> a_image("a", image_of(a, Half::kBfloat16, 64, false));
      Buffer<std::uint16_t> b_image("b", image_of(b, Half::kBfloat16, 128, true));
      Buffer<float> out("out", 128 * 64);
      launch(warpgroup(a.swizzle), [&] {
        wide_product(a_image.data(), b_image.data(), out.data(), case_of(a, b),
                     ProductMistake::kNone);
      });
      check_registers(out.values(), 128, 2);
    }
  }
}

TEST(products_of_256_columns_follow_the_canonical_layouts) {
  constexpr Canonical a{128, false, 16, 1024}, b{64, false, 16, 512};
  constexpr Canonical b_turned{128, true, 2048, 1024};
  for (const bool is_turned : {false, true}) {
    const Canonical& narrow_a = is_turned ? a : kCanonical[2];
    const Canonical& wide_b = is_turned ? b_turned : b;
    Buffer<std::uint16_t> a_image("a", image_of(narrow_a, Half::kFloat16, 64, false));
    Buffer<std::uint16_t> b_image("b", image_of(wide_b, Half::kFloat16, 256, true));
    Buffer<float> out("out", 128 * 128);
    launch(warpgroup(is_turned), [&] {
      widest_product(a_image.data(), b_image.data(), out.data(), case_of(narrow_a, wide_b));
    });
    check_registers(out.values(), 256, 1);
  }
}

// PTX ISA 9.7.15: wgmma.fence is needed before the first wgmma.mma_async and after other accesses
// to its sums; wgmma.wait_group before the sums are read and the operands are written. 8.6
// (proxies): a fence.proxy.async after a thread's writes to the operands.
TEST(mistakes_around_a_product_of_four_warps_are_found) {
  struct Row {
    ProductMistake mistake;
    FaultKind kind;
    const char* text;
  };
  constexpr Row rows[] = {
      {ProductMistake::kNoProxyFence, FaultKind::kRace, "no fence.proxy.async stands between"},
      {ProductMistake::kNoRegisterFence, FaultKind::kRace, "since the last wgmma.fence"},
      {ProductMistake::kNoWait, FaultKind::kInFlight, "sums of a wgmma.mma_async"},
      {ProductMistake::kWaitsForOneLess, FaultKind::kInFlight, "sums of a wgmma.mma_async"},
      {ProductMistake::kEarlyOverwrite, FaultKind::kRace,
       "an asynchronous operation of block 0 read"},
  };
  const Canonical& layout = kCanonical[3];
  for (const Row& row : rows) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      Buffer<std::uint16_t> a("a", image_of(layout, Half::kBfloat16, 64, false));
      Buffer<std::uint16_t> b("b", image_of(layout, Half::kBfloat16, 128, true));
      Buffer<float> out("out", 128 * 64);
      check_fault(fault_of(warpgroup(seed),
                           [&] {
                             wide_product(a.data(), b.data(), out.data(), case_of(layout, layout),
                                          row.mistake);
                           }),
                  row.kind, row.text);
    }
  }
}

// A wrong stride reads other memory: here beyond the operand, or NaN.
TEST(wrong_descriptor_is_found) {
  const Canonical& layout = kCanonical[3];
  Buffer<std::uint16_t> a("a", image_of(layout, Half::kBfloat16, 64, false));
  Buffer<std::uint16_t> b("b", image_of(layout, Half::kBfloat16, 128, true));
  ProductCase call = case_of(layout, layout);
  call.stride_b = 2048;
  Buffer<float> out("out", 128 * 64);
  check_fault(
      fault_of(warpgroup(),
               [&] { wide_product(a.data(), b.data(), out.data(), call, ProductMistake::kNone); }),
      FaultKind::kOutOfBounds, "behind shared memory of block 0");
}

}  // namespace gt::testing
