// Instructions that the threads of a kernel call, one function each. emulator/device/gt_device.h
// gives them the names that kernels use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "emulator/machine/launch.h"

namespace gt::emulator {

Dim3 thread_index();
Dim3 block_index();
Dim3 block_extent();
Dim3 grid_extent();

// Shared memory of this block for the type or the use identified by `key`; created at the first
// call.
void* shared_storage(const void* key, std::size_t bytes);
void* dynamic_shared_storage();

void sync_threads();
void barrier_sync(unsigned barrier, unsigned threads);
void barrier_arrive(unsigned barrier, unsigned threads);

// Exchanges a value among all lanes of mask: every lane gets all values.
using WarpValues = std::array<std::uint64_t, 32>;
WarpValues warp_exchange(const char* instruction, unsigned mask, std::uint64_t value);
void sync_warp(unsigned mask);
unsigned lane_index();
// PTX ISA, 9.7.9.6 shfl.sync: selects the lane whose value a lane gets.
enum class Shuffle { kUp, kDown, kButterfly, kIndex };
std::uint64_t shuffle(Shuffle kind, unsigned mask, std::uint64_t value, unsigned operand,
                      unsigned width);

enum class Order { kRelaxed, kAcquireRelease };
std::uint32_t atomic_load(const std::uint32_t* address, Scope scope, Order order);
void atomic_store(std::uint32_t* address, std::uint32_t value, Scope scope, Order order);
std::uint32_t atomic_add(std::uint32_t* address, std::uint32_t value, Scope scope, Order order);
float atomic_add(float* address, float value, Scope scope, Order order);
void fence(Scope scope);

// A clock that advances with every step of the scheduler.
std::uint64_t nanoseconds();

void copy_async(void* to, const void* from, std::size_t bytes, std::size_t read_bytes);
void copy_commit();
void copy_wait(std::size_t groups_left);

enum class Half : std::uint8_t { kBfloat16, kFloat16 };
void load_matrices(std::uint32_t (&registers)[4], const void* row, bool is_transposed);
void store_matrices(void* row, const std::uint32_t (&registers)[4]);
void multiply_add(Half type, float (&sums)[4], const std::uint32_t (&a)[4],
                  const std::uint32_t (&b)[2]);
float to_float(Half type, std::uint16_t bits);
std::uint16_t from_float(Half type, float value);

// Scope of an mbarrier's release and acquire.
enum class Reach { kBlock, kCluster };
void mbarrier_init(std::uint64_t* barrier, unsigned arrivals);
void mbarrier_arrive(std::uint64_t* barrier, unsigned count, std::uint32_t expected_bytes,
                     Reach reach = Reach::kBlock);
void mbarrier_complete_bytes(std::uint64_t* barrier, std::uint32_t bytes);
bool mbarrier_test_wait(std::uint64_t* barrier, unsigned parity);
void mbarrier_wait(std::uint64_t* barrier, unsigned parity, Reach reach = Reach::kBlock);

unsigned cluster_rank();
unsigned cluster_blocks();
void cluster_arrive();
void cluster_wait();
// mapa: address of the same variable in the shared memory of another block of the cluster.
void* shared_of_rank(const void* pointer, unsigned rank);

// fence.proxy.async: orders the events that this thread knows before asynchronous operations.
void fence_async();

// Starts copying the box at these coordinates, innermost first, to the same address in each block
// of `ranks` (a bit mask). The copy completes on the mbarrier at the same address there.
void copy_box(void* to, const void* map, std::uint64_t* barrier, const std::int32_t* coordinates,
              unsigned rank, unsigned ranks);

void change_registers(unsigned count, bool is_more);

// PTX ISA 9.7.15: wgmma. A thread holds columns / 2 floats of the sums.
struct MatrixDescriptors {
  std::uint64_t a, b;
  bool is_turned_a, is_turned_b;
};
std::uint64_t matrix_descriptor(const void* start, unsigned leading_bytes, unsigned stride_bytes,
                                unsigned swizzle_bytes);
void warpgroup_fence();
void warpgroup_multiply_add(Half type, unsigned columns, float* sums,
                            const MatrixDescriptors& operands, bool adds);
// Takes the first operand from four registers of each thread.
void warpgroup_multiply_add(Half type, unsigned columns, float* sums, const std::uint32_t* a,
                            std::uint64_t b, bool is_turned_b, bool adds);
void warpgroup_commit();
void warpgroup_wait(unsigned groups_left);

[[noreturn]] void trap(const char* text);

}  // namespace gt::emulator
