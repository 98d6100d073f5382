// Instructions of tensor cores that a warp executes together: PTX ISA 9.7.14.5.15 (ldmatrix) and
// 9.7.14.5.8 (fragments of mma.m16n8k16).
#include <cstring>

#include "emulator/machine/instructions.h"
#include "emulator/machine/machine.h"

namespace gt::emulator {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFFU;
constexpr std::size_t kRowBytes = 16;

std::uint16_t half_of(std::uint64_t pair, unsigned index) {
  return static_cast<std::uint16_t>(pair >> 16 * index);
}

}  // namespace

void load_matrices(std::uint32_t (&registers)[4], const void* row, bool is_transposed) {
  const auto address = reinterpret_cast<std::uintptr_t>(row);
  const auto place = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  if (address % kRowBytes != 0) {
    fail(FaultKind::kMisaligned, "ldmatrix: a row begins at a multiple of 16 bytes");
  }
  const Region& region = checked_touch({address, kRowBytes, Access::kRead, Scope::kPlain, place});
  if (!region.is_shared()) {
    fail(FaultKind::kMisuse, "ldmatrix: a row is not in shared memory");
  }
  const unsigned lane = current->lane();
  ++machine->statistics.accesses;
  current->block->banks[current->rank / kWarpThreads].add(lane, place, address, kRowBytes);
  // Each lane reads its row; two exchanges of half rows give all rows to all lanes.
  std::uint64_t halves[2];
  std::memcpy(halves, row, sizeof halves);
  const WarpValues left = warp_exchange("ldmatrix.sync", kAllLanes, halves[0]);
  const WarpValues right = warp_exchange("ldmatrix.sync", kAllLanes, halves[1]);
  const auto element = [&](unsigned matrix, unsigned r, unsigned c) {
    return half_of((c < 4 ? left : right)[matrix * 8 + r], c % 4);
  };
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    const unsigned group = lane / 4;
    const unsigned pair = lane % 4 * 2;
    const std::uint32_t low =
        is_transposed ? element(matrix, pair, group) : element(matrix, group, pair);
    const std::uint32_t high =
        is_transposed ? element(matrix, pair + 1, group) : element(matrix, group, pair + 1);
    registers[matrix] = low | high << 16;
  }
}

void store_matrices(void* row, const std::uint32_t (&registers)[4]) {
  const auto address = reinterpret_cast<std::uintptr_t>(row);
  const auto place = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  if (address % kRowBytes != 0) {
    fail(FaultKind::kMisaligned, "stmatrix: a row begins at a multiple of 16 bytes");
  }
  const Region& region = checked_touch({address, kRowBytes, Access::kWrite, Scope::kPlain, place});
  if (!region.is_shared()) {
    fail(FaultKind::kMisuse, "stmatrix: a row is not in shared memory");
  }
  const unsigned lane = current->lane();
  ++machine->statistics.accesses;
  current->block->banks[current->rank / kWarpThreads].add(lane, place, address, kRowBytes);
  // Lane 8 m + r gives the address of row r of matrix m; lanes 4 r to 4 r + 3 have the row's pairs.
  std::uint32_t words[4] = {};
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    const WarpValues all = warp_exchange("stmatrix.sync", kAllLanes, registers[matrix]);
    for (unsigned pair = 0; pair < 4 && matrix == lane / 8; ++pair) {
      words[pair] = static_cast<std::uint32_t>(all[lane % 8 * 4 + pair]);
    }
  }
  std::memcpy(row, words, sizeof words);
}

void multiply_add(Half type, float (&sums)[4], const std::uint32_t (&a)[4],
                  const std::uint32_t (&b)[2]) {
  const auto both = [](std::uint32_t low, std::uint32_t high) {
    return std::uint64_t{low} | std::uint64_t{high} << 32;
  };
  const WarpValues a_left = warp_exchange("mma.sync", kAllLanes, both(a[0], a[1]));
  const WarpValues a_right = warp_exchange("mma.sync", kAllLanes, both(a[2], a[3]));
  const WarpValues b_all = warp_exchange("mma.sync", kAllLanes, both(b[0], b[1]));
  // a0, a1: row l / 4; a2, a3: row l / 4 + 8; a4 to a7: the same rows, 8 columns further.
  const auto a_at = [&](unsigned row, unsigned k) {
    const unsigned source = row % 8 * 4 + k % 8 / 2;
    return to_float(type, half_of((k < 8 ? a_left : a_right)[source], row / 8 * 2 + k % 2));
  };
  // b0, b1: rows 2 (l % 4) and 2 (l % 4) + 1, column l / 4; b2, b3: 8 rows further.
  const auto b_at = [&](unsigned k, unsigned column) {
    return to_float(type, half_of(b_all[column * 4 + k % 8 / 2], k / 8 * 2 + k % 2));
  };
  const unsigned lane = current->lane();
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4 + i / 2 * 8;
    const unsigned column = lane % 4 * 2 + i % 2;
    double sum = double{sums[i]};
    for (unsigned k = 0; k < 16; ++k) {
      sum += double{a_at(row, k)} * double{b_at(k, column)};
    }
    sums[i] = static_cast<float>(sum);
  }
}

float to_float(Half type, std::uint16_t bits) {
  if (type == Half::kBfloat16) {
    return __builtin_bit_cast(float, std::uint32_t{bits} << 16);
  }
  return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}

std::uint16_t from_float(Half type, float value) {
  if (type == Half::kFloat16) {
    return __builtin_bit_cast(std::uint16_t, static_cast<_Float16>(value));
  }
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  if (value != value) {
    return 0x7FFF;  // PTX ISA, cvt: the canonical NaN
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

}  // namespace gt::emulator
