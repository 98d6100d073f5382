// Test kernels for the operations of sm_90a: correct ones, and ones with one mistake each.
#pragma once

#include <gt_hopper.h>

namespace gt::testing {

// Two blocks read each other's shared memory. Mistakes: 1 no barrier before, 2 no barrier after.
void cluster_exchange(unsigned* out, int mistake);
// Block 1 writes into block 0 and arrives at its mbarrier; block 0 waits at cluster scope where
// `reaches`.
void remote_arrival(const float* x, float* out, bool reaches);

struct BoxCopy {
  std::int32_t place[3];
  unsigned dims;
  unsigned elements;  // elements of the box
  unsigned expected_bytes;
  std::uint16_t ranks;      // 0: each block copies for itself
  bool prefetches = false;  // prefetches the map in every thread
};
// Writes each block's shared memory after the copy. Mistakes: 1 no fence after the mbarrier's init,
// 2 a wait for the wrong phase.
void copied_box(TensorMap map, std::uint16_t* out, BoxCopy copy, int mistake);

// Thread 0 prefetches, as if it were a map, memory that thread 1 writes.
void prefetch_beside_a_write(TensorMap* memory);

// Thread i stores the pair (2 i, 2 i + 1), at `shift` bytes from the start of shared memory; the
// kernel then writes that memory to out.
void stored_pairs(float* out, unsigned shift);

constexpr unsigned kImageElements = 8192;  // elements of one operand
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
// Writes the registers [128][columns / 2] of a 64 x columns product; a and b are images of shared
// memory. wide_product computes twice the product.
void wide_product(const std::uint16_t* a, const std::uint16_t* b, float* out, ProductCase call,
                  ProductMistake mistake);
void widest_product(const std::uint16_t* a, const std::uint16_t* b, float* out, ProductCase call);

// The first warpgroup releases registers, which the second takes.
void trade_registers(unsigned* out, bool gives);

}  // namespace gt::testing
