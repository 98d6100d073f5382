// Kernels of the tests of what sm_90a adds: right ones, and ones with one mistake each.
#pragma once

#include <gt_hopper.h>

namespace gt::testing {

// Two blocks read each other's shared memory. Mistakes: 1 no barrier before, 2 none after.
void cluster_exchange(unsigned* out, int mistake);
// Block 1 writes into block 0 and arrives at its mbarrier; block 0 waits with or without reach.
void remote_arrival(const float* x, float* out, bool reaches);

struct BoxCopy {
  std::int32_t place[3];
  unsigned dims;
  unsigned elements;  // of the box
  unsigned expected_bytes;
  std::uint16_t ranks;      // 0: a copy for the own block, by each block
  bool prefetches = false;  // the map, by every thread
};
// Shared memory after the copy, of each block. Mistakes: 1 the mbarrier's start is not fenced, 2
// the wrong phase is waited for.
void copied_box(TensorMap map, std::uint16_t* out, BoxCopy copy, int mistake);

// The memory that thread 1 writes is prefetched by thread 0, as if it were a map.
void prefetch_beside_a_write(TensorMap* memory);

// Pairs (2 i, 2 i + 1) by thread i, `shift` bytes from the start of shared memory; then that
// memory.
void stored_pairs(float* out, unsigned shift);

constexpr unsigned kImageElements = 8192;  // of one operand
struct ProductCase {
  unsigned swizzle;
  bool is_turned_a, is_turned_b;
  unsigned leading_a, stride_a, leading_b, stride_b;
};
enum class ProductMistake {
  kNone,
  kNoProxyFence,
  kNoRegisterFence,
  kNoWait,
  kWaitsForOneLess,
  kEarlyOverwrite,
};
// Registers [128][columns / 2] of a 64 x columns product, of operands as they stand in shared
// memory. wide_product: twice the product.
void wide_product(const std::uint16_t* a, const std::uint16_t* b, float* out, ProductCase call,
                  ProductMistake mistake);
void widest_product(const std::uint16_t* a, const std::uint16_t* b, float* out, ProductCase call);

// The first warpgroup gives up registers, the second takes them.
void trade_registers(unsigned* out, bool gives);

}  // namespace gt::testing
