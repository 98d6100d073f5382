// Replaces cuda/ptx/gt_hopper.h: defines the same names with the same meaning, and no others.
#pragma once

#include <gt_device.h>

#include "cuda/tensor_map.h"

namespace gt::device {

// ---- clusters ----
inline unsigned cluster_rank() { return emulator::cluster_rank(); }
inline void cluster_arrive() { emulator::cluster_arrive(); }
inline void cluster_wait() { emulator::cluster_wait(); }
template <class T>
T* shared_of_rank(T* pointer, unsigned rank) {
  return static_cast<T*>(emulator::shared_of_rank(pointer, rank));
}

// ---- visibility to the asynchronous proxy ----
inline void fence_async() { emulator::fence_async(); }
inline void fence_mbarrier_init() { emulator::fence_async(); }

// ---- mbarriers in a cluster ----
inline void mbarrier_arrive_at(std::uint64_t* barrier, unsigned rank) {
  emulator::mbarrier_arrive(shared_of_rank(barrier, rank), 1, 0, emulator::Reach::kCluster);
}
inline void mbarrier_wait_cluster(std::uint64_t* barrier, unsigned parity) {
  emulator::mbarrier_wait(barrier, parity, emulator::Reach::kCluster);
}

// ---- tensor copies ----
inline void prefetch_map(const TensorMap*) {}
inline void copy_box(void* to, const TensorMap* map, std::uint64_t* barrier, std::int32_t x,
                     std::int32_t y) {
  const std::int32_t place[] = {x, y};
  emulator::copy_box(to, map, barrier, place, 2, 1U << cluster_rank());
}
inline void copy_box(void* to, const TensorMap* map, std::uint64_t* barrier, std::int32_t x,
                     std::int32_t y, std::int32_t z) {
  const std::int32_t place[] = {x, y, z};
  emulator::copy_box(to, map, barrier, place, 3, 1U << cluster_rank());
}
inline void copy_box(void* to, const TensorMap* map, std::uint64_t* barrier, std::int32_t x,
                     std::int32_t y, std::int32_t z, std::int32_t w) {
  const std::int32_t place[] = {x, y, z, w};
  emulator::copy_box(to, map, barrier, place, 4, 1U << cluster_rank());
}
inline void copy_box_to_ranks(void* to, const TensorMap* map, std::uint64_t* barrier,
                              std::uint16_t ranks, std::int32_t x, std::int32_t y, std::int32_t z) {
  const std::int32_t place[] = {x, y, z};
  emulator::copy_box(to, map, barrier, place, 3, ranks);
}

// ---- registers of a warpgroup ----
template <unsigned count>
void raise_registers() {
  emulator::change_registers(count, true);
}
template <unsigned count>
void lower_registers() {
  emulator::change_registers(count, false);
}

// ---- products of four warps ----
template <unsigned swizzle_bytes>
std::uint64_t matrix_descriptor(const void* start, unsigned leading_bytes, unsigned stride_bytes) {
  return emulator::matrix_descriptor(start, leading_bytes, stride_bytes, swizzle_bytes);
}
inline void warpgroup_fence() { emulator::warpgroup_fence(); }
inline void warpgroup_commit() { emulator::warpgroup_commit(); }
template <unsigned groups_left>
void warpgroup_wait() {
  emulator::warpgroup_wait(groups_left);
}
template <unsigned groups_left, unsigned count>
void warpgroup_wait(float (&)[count]) {
  emulator::warpgroup_wait(groups_left);
}
template <unsigned count>
void warpgroup_wait_all(float (&)[count]) {
  emulator::warpgroup_wait(0);
}
inline void store_pair(std::uint64_t* shared, float first, float second) {
  *shared = __builtin_bit_cast(std::uint32_t, first) |
            std::uint64_t{__builtin_bit_cast(std::uint32_t, second)} << 32;
}
template <Half type, bool turned_a, bool turned_b, unsigned count>
void warpgroup_multiply_add(float (&sums)[count], std::uint64_t a, std::uint64_t b, bool adds) {
  static_assert(count == 32 || count == 64 || count == 128);
  emulator::warpgroup_multiply_add(type, 2 * count, sums, {a, b, turned_a, turned_b}, adds);
}
template <Half type, bool turned_b, unsigned count>
void warpgroup_multiply_add(float (&sums)[count], const std::uint32_t* a, std::uint64_t b,
                            bool adds) {
  static_assert(count == 32 || count == 64);
  emulator::warpgroup_multiply_add(type, 2 * count, sums, a, b, turned_b, adds);
}

}  // namespace gt::device
