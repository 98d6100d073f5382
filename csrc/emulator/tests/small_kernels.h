// Kernels of the emulator's own tests: correct ones, and ones with one mistake each.
#pragma once

#include <gt_device.h>

namespace gt::testing {

void copy_out_of_bounds(const float* x, float* out, int count);
void read_unwritten(const float* x, float* out);
void write_same_word(int* out);
void reverse_in_shared(const float* x, float* out, bool has_barrier);
void stride_in_shared(float* out, unsigned stride);
// Writes shared memory in order, then reads it with one stride and with another.
void two_strides_in_shared(float* out, unsigned first, unsigned second);
void one_half_waits(int* out);
void divergent_shuffle(unsigned* out);
void shuffles(unsigned* out, unsigned kind, unsigned operand, unsigned width);
void ballots(unsigned* out, unsigned pattern);
void named_barriers(unsigned* out, bool producer_arrives);
void message_by_flag(const float* x, float* slot, std::uint32_t* flag, float* out, int mistake);
void sum_by_atomics(const float* x, float* sum);
// Thread 0 sends one number to thread 1 by a relaxed flag between two fences; kPlain: none.
void message_by_fences(const float* x, float* slot, std::uint32_t* flag, float* out,
                       device::Scope before, device::Scope after);
// Each thread writes a number and adds 1 to the counter; the last of `all` sums the numbers.
void arrivals(std::uint32_t* numbers, std::uint32_t* counter, std::uint32_t* seen,
              std::uint32_t* sum, bool reaches_device);
// Block 0 writes the time, then block 1 does.
void times_of_two_blocks(std::uint64_t* times, std::uint32_t* flag);
void wait_by_the_time(std::uint64_t nanoseconds, std::uint64_t* out);
void powers_of_2(const float* x, float* out);
void copies(const float* x, float* out, unsigned read_bytes, bool waits);
void two_stage_copies(const float* x, float* out, bool waits_for_both);
void ring(const float* x, float* out, int steps, unsigned parity_mistake);
void transactions(unsigned* order);
// Loads four matrices of 8 x 8, row by row, and writes each lane's registers: [32][4].
void matrices(const std::uint16_t* source, std::uint32_t* out, bool is_transposed, unsigned shift);
// sums [16 x 8] += a [16 x 16] * b [16 x 8], from each lane's registers: [32][4], [32][2].
void tensor_core(const std::uint32_t* a, const std::uint32_t* b, float* sums, bool is_bfloat16);

}  // namespace gt::testing
