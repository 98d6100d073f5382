// Kernels of the emulator's own tests: right ones, and ones with one mistake each.
#pragma once

#include <gt_device.h>

namespace gt::testing {

void copy_out_of_bounds(const float* x, float* out, int count);
void read_unwritten(const float* x, float* out);
void write_same_word(int* out);
void reverse_in_shared(const float* x, float* out, bool has_barrier);
void stride_in_shared(float* out, unsigned stride);
void one_half_waits(int* out);
void divergent_shuffle(unsigned* out);
void shuffles(unsigned* out, unsigned kind, unsigned operand, unsigned width);
void ballots(unsigned* out, unsigned pattern);
void named_barriers(unsigned* out, bool producer_arrives);
void message_by_flag(const float* x, float* slot, std::uint32_t* flag, float* out, int mistake);
void sum_by_atomics(const float* x, float* sum);
void copies(const float* x, float* out, unsigned read_bytes, bool waits);
void two_stage_copies(const float* x, float* out, bool waits_for_both);
void ring(const float* x, float* out, int steps, unsigned parity_mistake);
void transactions(unsigned* order);

}  // namespace gt::testing
