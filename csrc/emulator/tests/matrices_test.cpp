// ldmatrix, mma.sync and conversions against tables written from the PTX documentation.
#include <limits>
#include <numeric>

#include "emulator/machine/instructions.h"
#include "emulator/tests/check.h"
#include "emulator/tests/small_kernels.h"

namespace gt::testing {
namespace {

using emulator::Buffer;
using emulator::FaultKind;
using emulator::Half;
using emulator::launch;
using emulator::Launch;

Launch one_warp(std::uint64_t seed = 0) {
  Launch wanted;
  wanted.block.x = 32;
  wanted.shared_bytes = 1024;
  wanted.seed = seed;
  return wanted;
}

// Element (row, column) of matrix m is 64 m + 8 row + column.
std::vector<std::uint16_t> numbered() {
  std::vector<std::uint16_t> values(256);
  std::iota(values.begin(), values.end(), std::uint16_t{0});
  return values;
}

}  // namespace

// PTX ISA 9.7.14.5.15 ldmatrix: thread 0 gets elements 0 and 1 of row 0, thread 1 elements 2 and 3,
// ..., thread 4 those of row 1; .trans: of the transposed matrix.
TEST(matrices_follow_the_table) {
  struct Row {
    unsigned lane, matrix, low, high, transposed_low, transposed_high;
  };
  constexpr Row rows[] = {
      {0, 0, 0, 1, 0, 8},          {1, 0, 2, 3, 16, 24},   {4, 0, 8, 9, 1, 9},
      {31, 0, 62, 63, 55, 63},     {5, 1, 74, 75, 81, 89}, {0, 2, 128, 129, 128, 136},
      {30, 3, 252, 253, 231, 239},
  };
  for (const bool is_transposed : {false, true}) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      Buffer<std::uint16_t> source("source", numbered());
      Buffer<std::uint32_t> out("out", 128);
      launch(one_warp(seed), [&] { matrices(source.data(), out.data(), is_transposed, 0); });
      for (const Row& row : rows) {
        const std::uint32_t expected = is_transposed
                                           ? row.transposed_low | row.transposed_high << 16
                                           : row.low | row.high << 16;
        check(out.data()[row.lane * 4 + row.matrix] == expected, "lane ", row.lane, ", matrix ",
              row.matrix, ": ", out.data()[row.lane * 4 + row.matrix], ", not ", expected);
      }
    }
  }
}

TEST(a_row_of_matrices_is_aligned) {
  Buffer<std::uint16_t> source("source", numbered());
  Buffer<std::uint32_t> out("out", 128);
  check_fault(fault_of(one_warp(), [&] { matrices(source.data(), out.data(), false, 1); }),
              FaultKind::kMisaligned, "ldmatrix");
}

TEST(a_row_of_matrices_is_in_shared_memory) {
  Launch wanted = one_warp();
  wanted.shared_bytes = 504;
  Buffer<std::uint16_t> source("source", numbered());
  Buffer<std::uint32_t> out("out", 128);
  check_fault(fault_of(wanted, [&] { matrices(source.data(), out.data(), false, 0); }),
              FaultKind::kOutOfBounds, "behind");
}

// PTX ISA 9.7.14.5.8, matrix fragments for mma.m16n8k16 with .f16 and .bf16. With groupID = lane /
// 4 and t = lane % 4: a_i has row groupID (+ 8 for a2, a3, a6, a7) and column 2 t + i % 2 (+ 8 from
// a4 on); b_i row 2 t + i % 2 (+ 8 from b2 on) and column groupID; c_i row groupID (+ 8 from c2 on)
// and column 2 t + i % 2.
TEST(tensor_cores_follow_the_table) {
  for (const Half type : {Half::kBfloat16, Half::kFloat16}) {
    float a[16][16], b[16][8], c[16][8];
    for (int row = 0; row < 16; ++row) {
      for (int k = 0; k < 16; ++k) {
        a[row][k] = static_cast<float>((row * 7 + k * 3) % 13 - 6);
      }
      for (int column = 0; column < 8; ++column) {
        b[row][column] = static_cast<float>((row * 5 + column * 11) % 9 - 4) / 2;
        c[row][column] = static_cast<float>(row - column);
      }
    }
    std::vector<std::uint32_t> a_registers(128, 0), b_registers(64, 0);
    std::vector<float> sums(128);
    const auto put = [&](std::vector<std::uint32_t>& registers, int element, float value) {
      const std::uint32_t bits = emulator::from_float(type, value);
      registers[static_cast<std::size_t>(element / 2)] |= bits << (element % 2 * 16);
    };
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane / 4, t = lane % 4;
      for (int i = 0; i < 8; ++i) {
        put(a_registers, lane * 8 + i,
            a[group + (i % 4 >= 2 ? 8 : 0)][2 * t + i % 2 + (i >= 4 ? 8 : 0)]);
      }
      for (int i = 0; i < 4; ++i) {
        put(b_registers, lane * 4 + i, b[2 * t + i % 2 + (i >= 2 ? 8 : 0)][group]);
        sums[static_cast<std::size_t>(lane * 4 + i)] = c[group + (i >= 2 ? 8 : 0)][2 * t + i % 2];
      }
    }
    Buffer<std::uint32_t> a_buffer("a", a_registers), b_buffer("b", b_registers);
    Buffer<float> out("sums", sums);
    launch(one_warp(3), [&] {
      tensor_core(a_buffer.data(), b_buffer.data(), out.data(), type == Half::kBfloat16);
    });
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + (i >= 2 ? 8 : 0), column = lane % 4 * 2 + i % 2;
        double expected = double{c[row][column]};
        for (int k = 0; k < 16; ++k) {
          expected += double{a[row][k]} * double{b[k][column]};
        }
        const auto at = static_cast<std::size_t>(lane * 4 + i);
        check_close(out.data()[at], expected, 0, "sums", at);
      }
    }
  }
}

// PTX ISA 9.7.9.21 cvt.rn: rounds to the nearest, ties to even; too large values become infinite.
TEST(conversions_follow_the_table) {
  struct Row {
    Half type;
    float value;
    std::uint16_t bits;
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr Row rows[] = {
      {Half::kBfloat16, 1.0F, 0x3F80},          {Half::kBfloat16, 1.00390625F, 0x3F80},
      {Half::kBfloat16, 1.01171875F, 0x3F82},   {Half::kBfloat16, -3.4e38F, 0xFF80},
      {Half::kBfloat16, kInfinity, 0x7F80},     {Half::kFloat16, 1.0F, 0x3C00},
      {Half::kFloat16, 1.00048828125F, 0x3C00}, {Half::kFloat16, 65520.0F, 0x7C00},
      {Half::kFloat16, 5.9604645e-8F, 0x0001},  {Half::kFloat16, -0.0F, 0x8000},
  };
  for (const Row& row : rows) {
    const std::uint16_t bits = emulator::from_float(row.type, row.value);
    check(bits == row.bits, row.value, ": ", bits, ", not ", row.bits);
    const float back = emulator::to_float(row.type, bits);
    check(emulator::from_float(row.type, back) == bits, "back from ", bits);
  }
  check(emulator::from_float(Half::kBfloat16, std::nanf("")) == 0x7FFF, "not a number");
}

}  // namespace gt::testing
