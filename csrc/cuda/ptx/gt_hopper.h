// Device operations of sm_90a beyond gt_device.h: clusters, tensor copies (TMA), products of four
// warps (wgmma). emulator/device/gt_hopper.h has the same names for a CPU.
#pragma once

#include <gt_device.h>

#include "cuda/tensor_map.h"

namespace gt::device {

// ---- clusters ----
__device__ inline unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
// Address of the same variable in the shared memory of another block of the cluster.
template <class T>
__device__ T* shared_of_rank(T* pointer, unsigned rank) {
  T* mapped;
  asm("mapa.u64 %0, %1, %2;" : "=l"(mapped) : "l"(pointer), "r"(rank));
  return mapped;
}

// ---- visibility to the asynchronous proxy ----
__device__ inline void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// ---- mbarriers in a cluster ----
// Arrives at the corresponding barrier of another block of the cluster, or of this one. The scope
// is the block, because a release at cluster scope is a fence of the whole device (MEMBAR.ALL.GPU)
// every time. Block scope suffices where completed products were the only readers.
__device__ inline void mbarrier_arrive_at(std::uint64_t* barrier, unsigned rank) {
  asm volatile(
      "{ .reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.release.cta.shared::cluster.b64 _, [there]; }" ::"r"(
          shared_address(barrier)),
      "r"(rank)
      : "memory");
}
// Waits like mbarrier_wait on a barrier at which other blocks arrive too. The acquire at cluster
// scope empties the cache (CCTL.IVALL) every time.
__device__ inline void mbarrier_wait_cluster(std::uint64_t* barrier, unsigned parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// ---- tensor copies: issued by one thread; coordinates innermost first; zeros beyond the tensor
// ----
__device__ inline void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ inline void copy_box(void* to, const TensorMap* map, std::uint64_t* barrier,
                                std::int32_t x, std::int32_t y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
      "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier))
      : "memory");
}
__device__ inline void copy_box(void* to, const TensorMap* map, std::uint64_t* barrier,
                                std::int32_t x, std::int32_t y, std::int32_t z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
      : "memory");
}
__device__ inline void copy_box(void* to, const TensorMap* map, std::uint64_t* barrier,
                                std::int32_t x, std::int32_t y, std::int32_t z, std::int32_t w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(to)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(barrier))
      : "memory");
}
// Copies to the same address in each block of `ranks`, a bit mask; each block's barrier counts its
// bytes.
__device__ inline void copy_box_to_ranks(void* to, const TensorMap* map, std::uint64_t* barrier,
                                         std::uint16_t ranks, std::int32_t x, std::int32_t y,
                                         std::int32_t z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)), "h"(ranks)
      : "memory");
}

// ---- registers of a warpgroup: all of its warps ----
template <unsigned count>
__device__ void raise_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
template <unsigned count>
__device__ void lower_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

// ---- products of four warps ----
// PTX ISA, matrix descriptor format. `swizzle_bytes` is 0, 32, 64 or 128. Adding n / 16 to the
// descriptor moves its start by n bytes, a multiple of 16.
template <unsigned swizzle_bytes>
__device__ std::uint64_t matrix_descriptor(const void* start, std::uint64_t leading_bytes,
                                           std::uint64_t stride_bytes) {
  constexpr std::uint64_t kMode = swizzle_bytes == 0     ? 0
                                  : swizzle_bytes == 128 ? 1
                                  : swizzle_bytes == 64  ? 2
                                                         : 3;
  const std::uint64_t at = shared_address(start);
  return (at & 0x3FFFF) >> 4 | (leading_bytes & 0x3FFFF) >> 4 << 16 |
         (stride_bytes & 0x3FFFF) >> 4 << 32 | kMode << 62;
}

// Required before the first product, and after other accesses to the sums.
__device__ inline void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void warpgroup_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until all but the newest `groups_left` groups are complete: their operands may be
// overwritten.
template <unsigned groups_left>
__device__ void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups_left) : "memory");
}
// Waits in the same way, where `sums` belong to a complete group: the compiler moves no use of them
// before the wait.
template <unsigned groups_left, unsigned count>
__device__ void warpgroup_wait(float (&sums)[count]) {
  warpgroup_wait<groups_left>();
#pragma unroll
  for (unsigned i = 0; i < count; ++i) {
    asm volatile("" : "+f"(sums[i])::"memory");
  }
}
// Waits for all groups. The compiler moves no use of the sums before the wait.
template <unsigned count>
__device__ void warpgroup_wait_all(float (&sums)[count]) {
  warpgroup_wait<0>();
#pragma unroll
  for (unsigned i = 0; i < count; ++i) {
    asm volatile("" : "+f"(sums[i])::"memory");
  }
}

// Stores two adjacent sums to shared memory in one access. In plain C++ the compiler would keep the
// sums in pairs between products, and ptxas would then serialise the products.
__device__ inline void store_pair(std::uint64_t* shared, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(shared_address(shared)), "f"(first),
               "f"(second)
               : "memory");
}

// Sums (64 x 2 count) = a (64 x 16) * b (16 x 2 count), added to the old sums where `adds`. A
// `turned` operand is stored along the rows of a, or the columns of b, not along the depth.
#define GT_SUMS_4(i) "+f"(sums[i]), "+f"(sums[(i) + 1]), "+f"(sums[(i) + 2]), "+f"(sums[(i) + 3])
#define GT_SUMS_16(i) GT_SUMS_4(i), GT_SUMS_4((i) + 4), GT_SUMS_4((i) + 8), GT_SUMS_4((i) + 12)
#define GT_SUMS_64(i) \
  GT_SUMS_16(i), GT_SUMS_16((i) + 16), GT_SUMS_16((i) + 32), GT_SUMS_16((i) + 48)
#define GT_NAMES_64                                                                  \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define GT_NAMES_128                                                                           \
  GT_NAMES_64                                                                                  \
  ", "                                                                                         \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "           \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "     \
  "%111, "                                                                                     \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
  "%127"

template <Half type, bool turned_a, bool turned_b>
__device__ void warpgroup_multiply_add(float (&sums)[64], std::uint64_t a, std::uint64_t b,
                                       bool adds) {
#define GT_MULTIPLY_ADD(type)                                                       \
  asm volatile(                                                                     \
      "{ .reg .pred adds; setp.ne.b32 adds, %66, 0;\n"                              \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" GT_NAMES_64 \
      "}, %64, %65, adds, 1, 1, %67, %68; }"                                        \
      : GT_SUMS_64(0)                                                               \
      : "l"(a), "l"(b), "r"(int{adds}), "n"(int{turned_a}), "n"(int{turned_b})      \
      : "memory")
  if constexpr (type == Half::kBfloat16) {
    GT_MULTIPLY_ADD("bf16");
  } else {
    GT_MULTIPLY_ADD("f16");
  }
#undef GT_MULTIPLY_ADD
}
template <Half type, bool turned_a, bool turned_b>
__device__ void warpgroup_multiply_add(float (&sums)[128], std::uint64_t a, std::uint64_t b,
                                       bool adds) {
#define GT_MULTIPLY_ADD(type)                                                        \
  asm volatile(                                                                      \
      "{ .reg .pred adds; setp.ne.b32 adds, %130, 0;\n"                              \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {" GT_NAMES_128 \
      "}, %128, %129, adds, 1, 1, %131, %132; }"                                     \
      : GT_SUMS_64(0), GT_SUMS_64(64)                                                \
      : "l"(a), "l"(b), "r"(int{adds}), "n"(int{turned_a}), "n"(int{turned_b})       \
      : "memory")
  if constexpr (type == Half::kBfloat16) {
    GT_MULTIPLY_ADD("bf16");
  } else {
    GT_MULTIPLY_ADD("f16");
  }
#undef GT_MULTIPLY_ADD
}
#define GT_NAMES_32                                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
template <Half type, bool turned_a, bool turned_b>
__device__ void warpgroup_multiply_add(float (&sums)[32], std::uint64_t a, std::uint64_t b,
                                       bool adds) {
#define GT_MULTIPLY_ADD(type)                                                      \
  asm volatile(                                                                    \
      "{ .reg .pred adds; setp.ne.b32 adds, %34, 0;\n"                             \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" GT_NAMES_32 \
      "}, %32, %33, adds, 1, 1, %35, %36; }"                                       \
      : GT_SUMS_16(0), GT_SUMS_16(16)                                              \
      : "l"(a), "l"(b), "r"(int{adds}), "n"(int{turned_a}), "n"(int{turned_b})     \
      : "memory")
  if constexpr (type == Half::kBfloat16) {
    GT_MULTIPLY_ADD("bf16");
  } else {
    GT_MULTIPLY_ADD("f16");
  }
#undef GT_MULTIPLY_ADD
}
// Multiplies with a in registers, in the layout of mma.m16n8k16: 16 rows a warp.
template <Half type, bool turned_b>
__device__ void warpgroup_multiply_add(float (&sums)[64], const std::uint32_t* a, std::uint64_t b,
                                       bool adds) {
#define GT_MULTIPLY_ADD(type)                                                                  \
  asm volatile(                                                                                \
      "{ .reg .pred adds; setp.ne.b32 adds, %69, 0;\n"                                         \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" GT_NAMES_64            \
      "}, {%64, %65, %66, %67}, %68, adds, 1, 1, %70; }"                                       \
      : GT_SUMS_64(0)                                                                          \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{adds}), "n"(int{turned_b}) \
      : "memory")
  if constexpr (type == Half::kBfloat16) {
    GT_MULTIPLY_ADD("bf16");
  } else {
    GT_MULTIPLY_ADD("f16");
  }
#undef GT_MULTIPLY_ADD
}
template <Half type, bool turned_b>
__device__ void warpgroup_multiply_add(float (&sums)[32], const std::uint32_t* a, std::uint64_t b,
                                       bool adds) {
#define GT_MULTIPLY_ADD(type)                                                                  \
  asm volatile(                                                                                \
      "{ .reg .pred adds; setp.ne.b32 adds, %37, 0;\n"                                         \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" GT_NAMES_32             \
      "}, {%32, %33, %34, %35}, %36, adds, 1, 1, %38; }"                                       \
      : GT_SUMS_16(0), GT_SUMS_16(16)                                                          \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{adds}), "n"(int{turned_b}) \
      : "memory")
  if constexpr (type == Half::kBfloat16) {
    GT_MULTIPLY_ADD("bf16");
  } else {
    GT_MULTIPLY_ADD("f16");
  }
#undef GT_MULTIPLY_ADD
}
#undef GT_NAMES_32
#undef GT_SUMS_4
#undef GT_SUMS_16
#undef GT_SUMS_64
#undef GT_NAMES_64
#undef GT_NAMES_128

}  // namespace gt::device
