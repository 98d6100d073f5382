// Device operations beyond CUDA's built-ins: thin wrappers of PTX, each one instruction where one
// exists. emulator/device/gt_device.h has the same names for a CPU.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gt::device {

enum class Scope : std::uint8_t { kPlain, kBlock, kDevice, kSystem };

constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// ---- shared memory ----
template <class T>
__device__ T& static_shared() {
  __shared__ T storage;
  return storage;
}
__device__ inline unsigned char* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char bytes[];
  return bytes;
}
__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- barriers ----
__device__ inline void barrier_sync(unsigned barrier, unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void barrier_arrive(unsigned barrier, unsigned threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---- warps ----
__device__ inline unsigned lane_index() {
  unsigned lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
template <class T>
__device__ T shuffle_up(T value, unsigned delta, unsigned mask = kAllLanes, unsigned width = 32) {
  return __shfl_up_sync(mask, value, delta, static_cast<int>(width));
}
template <class T>
__device__ T shuffle_down(T value, unsigned delta, unsigned mask = kAllLanes, unsigned width = 32) {
  return __shfl_down_sync(mask, value, delta, static_cast<int>(width));
}
template <class T>
__device__ T shuffle_xor(T value, unsigned lanes, unsigned mask = kAllLanes, unsigned width = 32) {
  return __shfl_xor_sync(mask, value, static_cast<int>(lanes), static_cast<int>(width));
}
template <class T>
__device__ T shuffle_from(T value, unsigned lane, unsigned mask = kAllLanes, unsigned width = 32) {
  return __shfl_sync(mask, value, static_cast<int>(lane), static_cast<int>(width));
}
__device__ inline unsigned vote_ballot(bool predicate, unsigned mask = kAllLanes) {
  return __ballot_sync(mask, predicate);
}
__device__ inline bool vote_any(bool predicate, unsigned mask = kAllLanes) {
  return __any_sync(mask, predicate) != 0;
}
__device__ inline bool vote_all(bool predicate, unsigned mask = kAllLanes) {
  return __all_sync(mask, predicate) != 0;
}

// ---- atomics ----
// One instruction for each scope, because PTX puts the scope into the mnemonic.
#define GT_BY_SCOPE(before, after, ...)                         \
  if constexpr (scope == Scope::kBlock) {                       \
    asm volatile(before ".cta" after : __VA_ARGS__ : "memory"); \
  } else if constexpr (scope == Scope::kDevice) {               \
    asm volatile(before ".gpu" after : __VA_ARGS__ : "memory"); \
  } else {                                                      \
    static_assert(scope == Scope::kSystem);                     \
    asm volatile(before ".sys" after : __VA_ARGS__ : "memory"); \
  }

template <Scope scope>
__device__ std::uint32_t load_relaxed(const std::uint32_t* address) {
  std::uint32_t value;
  GT_BY_SCOPE("ld.relaxed", ".global.u32 %0, [%1];", "=r"(value) : "l"(address))
  return value;
}
template <Scope scope>
__device__ std::uint32_t load_acquire(const std::uint32_t* address) {
  std::uint32_t value;
  GT_BY_SCOPE("ld.acquire", ".global.u32 %0, [%1];", "=r"(value) : "l"(address))
  return value;
}
template <Scope scope>
__device__ void store_relaxed(std::uint32_t* address, std::uint32_t value) {
  GT_BY_SCOPE("st.relaxed", ".global.u32 [%0], %1;", : "l"(address), "r"(value))
}
template <Scope scope>
__device__ void store_release(std::uint32_t* address, std::uint32_t value) {
  GT_BY_SCOPE("st.release", ".global.u32 [%0], %1;", : "l"(address), "r"(value))
}
template <Scope scope>
__device__ std::uint32_t add_acquire_release(std::uint32_t* address, std::uint32_t value) {
  std::uint32_t before;
  GT_BY_SCOPE("atom.acq_rel", ".global.add.u32 %0, [%1], %2;", "=r"(before) : "l"(address),
              "r"(value))
  return before;
}
template <Scope scope>
__device__ float add_relaxed(float* address, float value) {
  float before;
  GT_BY_SCOPE("atom.relaxed", ".global.add.f32 %0, [%1], %2;", "=f"(before) : "l"(address),
              "f"(value))
  return before;
}
template <Scope scope>
__device__ void fence(){GT_BY_SCOPE("fence.acq_rel", ";", :)}
#undef GT_BY_SCOPE

__device__ inline std::uint64_t nanoseconds() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

// ---- loads ----
// Loads 16 bytes that are read once and that nobody writes during the launch.
__device__ inline void load_streamed(const void* from, std::uint32_t (&words)[4]) {
  asm("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
      : "l"(from));
}

// ---- asynchronous copies of a thread ----
template <unsigned bytes>
__device__ void copy_async(void* shared, const void* global, unsigned read_bytes = bytes) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(global), "r"(read_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)),
                 "l"(global), "n"(bytes), "r"(read_bytes)
                 : "memory");
  }
}
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <unsigned groups_left>
__device__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups_left) : "memory");
}

// ---- tensor cores ----
enum class Half : std::uint8_t { kBfloat16, kFloat16 };

// PTX ISA, ldmatrix: four matrices of 8 x 8 elements of 16 bits. Lane l gives the address of row l
// % 8 of matrix l / 8 and gets, for matrix i, columns 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 in
// registers[i].
__device__ inline void load_matrices(std::uint32_t (&registers)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(row))
               : "memory");
}
// Loads the matrices transposed.
__device__ inline void load_matrices_transposed(std::uint32_t (&registers)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(row))
               : "memory");
}

// PTX ISA, stmatrix: the inverse of load_matrices, with the lanes' rows and registers in the same
// layout.
#if __CUDA_ARCH__ >= 900
__device__ inline void store_matrices(void* row, const std::uint32_t (&registers)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
      "r"(registers[0]), "r"(registers[1]), "r"(registers[2]), "r"(registers[3])
      : "memory");
}
#endif

// PTX ISA, mma.m16n8k16: sums (16 x 8, float32) += a (16 x 16) * b (16 x 8).
#define GT_MULTIPLY_ADD(type)                                                         \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
template <Half type>
__device__ void multiply_add(float (&sums)[4], const std::uint32_t (&a)[4],
                             const std::uint32_t (&b)[2]) {
  if constexpr (type == Half::kBfloat16) {
    GT_MULTIPLY_ADD("bf16");
  } else {
    GT_MULTIPLY_ADD("f16");
  }
}
#undef GT_MULTIPLY_ADD

template <Half type>
__device__ float to_float(std::uint16_t bits) {
  if constexpr (type == Half::kBfloat16) {
    return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
  } else {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
}
// Rounds to the nearest, ties to even.
template <Half type>
__device__ std::uint16_t from_float(float value) {
  std::uint16_t bits;
  if constexpr (type == Half::kBfloat16) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  } else {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  }
  return bits;
}

// Rounds two values, the first into the lower half of the result.
template <Half type>
__device__ std::uint32_t pair_from_floats(float low, float high) {
  std::uint32_t bits;
  if constexpr (type == Half::kBfloat16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  }
  return bits;
}

// ---- mbarriers ----
__device__ inline void mbarrier_init(std::uint64_t* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
__device__ inline void mbarrier_arrive(std::uint64_t* barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(
                   shared_address(barrier))
               : "memory");
}
#if __CUDA_ARCH__ >= 900
__device__ inline void mbarrier_arrive_expect(std::uint64_t* barrier, unsigned bytes) {
  asm volatile(
      "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(
          shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
__device__ inline void mbarrier_wait(std::uint64_t* barrier, unsigned parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
#endif

// ---- arithmetic ----
// Returns `value`, hidden from the compiler: values derived from it are computed again at each use
// and not kept in registers between uses.
__device__ inline std::uint64_t made_anew(std::uint64_t value) {
  asm volatile("" : "+l"(value));
  return value;
}
__device__ inline float exponential(float x) { return expf(x); }
__device__ inline float power_of_2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
// 1 / x within two units in the last place; 0 for numbers beyond 2^126.
__device__ inline float reciprocal(float x) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}
__device__ inline float logarithm(float x) { return logf(x); }
__device__ inline float square_root(float x) { return __fsqrt_rn(x); }
__device__ inline float reciprocal_square_root(float x) { return 1.0F / __fsqrt_rn(x); }
__device__ inline float error_function(float x) { return erff(x); }
__device__ inline float maximum(float a, float b) { return fmaxf(a, b); }

// Ends the launch with an error, which every later call of the driver returns too. Only the
// emulator reports the text.
__device__ inline void trap(const char*) { __trap(); }

}  // namespace gt::device
