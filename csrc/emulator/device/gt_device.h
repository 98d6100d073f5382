// Replaces the CUDA built-ins and cuda/ptx/gt_device.h, so that the same kernel source compiles as
// C++ and runs under the emulator. Defines the same names with the same meaning, and no others.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/element.h"
#include "emulator/machine/instructions.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define threadIdx (::gt::emulator::thread_index())
#define blockIdx (::gt::emulator::block_index())
#define blockDim (::gt::emulator::block_extent())
#define gridDim (::gt::emulator::grid_extent())

inline void __syncthreads() { gt::emulator::sync_threads(); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFU) { gt::emulator::sync_warp(mask); }

namespace gt::device {

using emulator::Scope;

constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// ---- shared memory ----
template <class T>
T& static_shared() {
  static const char key = 0;
  return *static_cast<T*>(emulator::shared_storage(&key, sizeof(T)));
}
inline unsigned char* dynamic_shared() {
  return static_cast<unsigned char*>(emulator::dynamic_shared_storage());
}

// ---- barriers ----
inline void barrier_sync(unsigned barrier, unsigned threads) {
  emulator::barrier_sync(barrier, threads);
}
inline void barrier_arrive(unsigned barrier, unsigned threads) {
  emulator::barrier_arrive(barrier, threads);
}

// ---- warps ----
inline unsigned lane_index() { return emulator::lane_index(); }

template <class T>
T shuffled(emulator::Shuffle kind, unsigned mask, T value, unsigned operand, unsigned width) {
  static_assert(sizeof(T) == 4);
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  return __builtin_bit_cast(
      T, static_cast<std::uint32_t>(emulator::shuffle(kind, mask, bits, operand, width)));
}
template <class T>
T shuffle_up(T value, unsigned delta, unsigned mask = kAllLanes, unsigned width = 32) {
  return shuffled(emulator::Shuffle::kUp, mask, value, delta, width);
}
template <class T>
T shuffle_down(T value, unsigned delta, unsigned mask = kAllLanes, unsigned width = 32) {
  return shuffled(emulator::Shuffle::kDown, mask, value, delta, width);
}
template <class T>
T shuffle_xor(T value, unsigned lanes, unsigned mask = kAllLanes, unsigned width = 32) {
  return shuffled(emulator::Shuffle::kButterfly, mask, value, lanes, width);
}
template <class T>
T shuffle_from(T value, unsigned lane, unsigned mask = kAllLanes, unsigned width = 32) {
  return shuffled(emulator::Shuffle::kIndex, mask, value, lane, width);
}
inline unsigned vote_ballot(bool predicate, unsigned mask = kAllLanes) {
  const emulator::WarpValues values = emulator::warp_exchange("vote.sync", mask, predicate);
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    ballot |= (mask >> lane & 1U) != 0 && values[lane] != 0 ? 1U << lane : 0U;
  }
  return ballot;
}
inline bool vote_any(bool predicate, unsigned mask = kAllLanes) {
  return vote_ballot(predicate, mask) != 0;
}
inline bool vote_all(bool predicate, unsigned mask = kAllLanes) {
  return vote_ballot(predicate, mask) == mask;
}

// ---- atomics ----
template <Scope scope>
std::uint32_t load_relaxed(const std::uint32_t* address) {
  return emulator::atomic_load(address, scope, emulator::Order::kRelaxed);
}
template <Scope scope>
std::uint32_t load_acquire(const std::uint32_t* address) {
  return emulator::atomic_load(address, scope, emulator::Order::kAcquireRelease);
}
template <Scope scope>
void store_relaxed(std::uint32_t* address, std::uint32_t value) {
  emulator::atomic_store(address, value, scope, emulator::Order::kRelaxed);
}
template <Scope scope>
void store_release(std::uint32_t* address, std::uint32_t value) {
  emulator::atomic_store(address, value, scope, emulator::Order::kAcquireRelease);
}
template <Scope scope>
std::uint32_t add_acquire_release(std::uint32_t* address, std::uint32_t value) {
  return emulator::atomic_add(address, value, scope, emulator::Order::kAcquireRelease);
}
template <Scope scope>
float add_relaxed(float* address, float value) {
  return emulator::atomic_add(address, value, scope, emulator::Order::kRelaxed);
}
template <Scope scope>
void fence() {
  emulator::fence(scope);
}
inline std::uint64_t nanoseconds() { return emulator::nanoseconds(); }

// ---- loads ----
inline void load_streamed(const void* from, std::uint32_t (&words)[4]) {
  struct alignas(16) Chunk {
    std::uint32_t words[4];
  };
  const Chunk chunk = *static_cast<const Chunk*>(from);
  for (unsigned i = 0; i < 4; ++i) {
    words[i] = chunk.words[i];
  }
}

// ---- asynchronous copies of a thread ----
template <unsigned bytes>
void copy_async(void* shared, const void* global, unsigned read_bytes = bytes) {
  emulator::copy_async(shared, global, bytes, read_bytes);
}
inline void copy_commit() { emulator::copy_commit(); }
template <unsigned groups_left>
void copy_wait() {
  emulator::copy_wait(groups_left);
}

// ---- tensor cores ----
using emulator::Half;

inline void load_matrices(std::uint32_t (&registers)[4], const void* row) {
  emulator::load_matrices(registers, row, false);
}
inline void load_matrices_transposed(std::uint32_t (&registers)[4], const void* row) {
  emulator::load_matrices(registers, row, true);
}
inline void store_matrices(void* row, const std::uint32_t (&registers)[4]) {
  emulator::store_matrices(row, registers);
}
template <Half type>
void multiply_add(float (&sums)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  emulator::multiply_add(type, sums, a, b);
}
template <Half type>
float to_float(std::uint16_t bits) {
  return emulator::to_float(type, bits);
}
template <Half type>
std::uint16_t from_float(float value) {
  return emulator::from_float(type, value);
}

template <Half type>
std::uint32_t pair_from_floats(float low, float high) {
  return emulator::from_float(type, low) | std::uint32_t{emulator::from_float(type, high)} << 16;
}

// ---- mbarriers ----
inline void mbarrier_init(std::uint64_t* barrier, unsigned arrivals) {
  emulator::mbarrier_init(barrier, arrivals);
}
inline void mbarrier_arrive(std::uint64_t* barrier) { emulator::mbarrier_arrive(barrier, 1, 0); }
inline void mbarrier_arrive_expect(std::uint64_t* barrier, unsigned bytes) {
  emulator::mbarrier_arrive(barrier, 1, bytes);
}
inline void mbarrier_wait(std::uint64_t* barrier, unsigned parity) {
  emulator::mbarrier_wait(barrier, parity);
}

// ---- arithmetic ----
inline std::uint64_t made_anew(std::uint64_t value) { return value; }
inline float exponential(float x) { return std::exp(x); }
// .ftz flushes a subnormal result to 0.
inline float power_of_2(float x) {
  const float power = std::exp2(x);
  return power < 0x1p-126F ? 0.0F : power;
}
inline float reciprocal(float x) {
  const float inverse = 1.0F / x;
  return std::fabs(inverse) < 0x1p-126F ? 0.0F : inverse;
}
inline float logarithm(float x) { return std::log(x); }
inline float square_root(float x) { return std::sqrt(x); }
inline float reciprocal_square_root(float x) { return 1.0F / std::sqrt(x); }
inline float error_function(float x) { return std::erf(x); }
inline float maximum(float a, float b) { return std::fmax(a, b); }

using emulator::trap;

}  // namespace gt::device
