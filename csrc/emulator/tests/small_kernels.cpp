#include "emulator/tests/small_kernels.h"

namespace gt::testing {
namespace {

using device::Scope;

struct Numbers {
  float values[1024];
};
struct Ring {
  std::uint64_t full[2];
  std::uint64_t empty[2];
  float values[2];
};

}  // namespace

void copy_out_of_bounds(const float* x, float* out, int count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (static_cast<int>(i) <= count) {  // one too many
    out[i] = x[i];
  }
}

void read_unwritten(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x]; }

void write_same_word(int* out) { out[0] = static_cast<int>(threadIdx.x); }

void reverse_in_shared(const float* x, float* out, bool has_barrier) {
  Numbers& shared = device::static_shared<Numbers>();
  shared.values[threadIdx.x] = x[threadIdx.x];
  if (has_barrier) {
    __syncthreads();
  }
  out[threadIdx.x] = shared.values[blockDim.x - 1 - threadIdx.x];
}

void stride_in_shared(float* out, unsigned stride) {
  Numbers& shared = device::static_shared<Numbers>();
  shared.values[threadIdx.x * stride] = 1.0F;
  out[threadIdx.x] = shared.values[threadIdx.x * stride];
}

void two_strides_in_shared(float* out, unsigned first, unsigned second) {
  Numbers& shared = device::static_shared<Numbers>();
  for (unsigned i = threadIdx.x; i < 1024; i += blockDim.x) {
    shared.values[i] = static_cast<float>(i);
  }
  __syncthreads();
  out[threadIdx.x] = shared.values[threadIdx.x * first];
  out[32 + threadIdx.x] = shared.values[threadIdx.x * second];
}

void one_half_waits(int* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}

void divergent_shuffle(unsigned* out) {
  if (threadIdx.x < 16) {
    out[threadIdx.x] = device::shuffle_xor(threadIdx.x, 1U);
  }
}

void shuffles(unsigned* out, unsigned kind, unsigned operand, unsigned width) {
  const unsigned lane = device::lane_index();
  unsigned value = lane;
  if (kind == 0) {
    value = device::shuffle_up(value, operand, device::kAllLanes, width);
  } else if (kind == 1) {
    value = device::shuffle_down(value, operand, device::kAllLanes, width);
  } else if (kind == 2) {
    value = device::shuffle_xor(value, operand, device::kAllLanes, width);
  } else {
    value = device::shuffle_from(value, operand, device::kAllLanes, width);
  }
  out[lane] = value;
}

void ballots(unsigned* out, unsigned pattern) {
  const unsigned lane = device::lane_index();
  const bool predicate = (pattern >> lane & 1U) != 0;
  const unsigned ballot = device::vote_ballot(predicate);
  const bool any = device::vote_any(predicate);
  const bool all = device::vote_all(predicate);
  if (lane == 0) {
    out[0] = ballot;
    out[1] = any ? 1 : 0;
    out[2] = all ? 1 : 0;
  }
}

// Warp 0 writes and arrives; warp 1 waits and reads.
void named_barriers(unsigned* out, bool producer_arrives) {
  Numbers& shared = device::static_shared<Numbers>();
  const unsigned lane = device::lane_index();
  if (threadIdx.x < 32) {
    shared.values[lane] = static_cast<float>(lane);
    if (producer_arrives) {
      device::barrier_arrive(3, 64);
    }
  } else {
    device::barrier_sync(3, 64);
    out[lane] = static_cast<unsigned>(shared.values[31 - lane]);
  }
}

// Block 0 sends one number to block 1. Mistakes: 1 relaxed flag, 2 plain wait, 3 block scope.
void message_by_flag(const float* x, float* slot, std::uint32_t* flag, float* out, int mistake) {
  if (blockIdx.x == 0) {
    *slot = *x;
    if (mistake == 1) {
      device::store_relaxed<Scope::kDevice>(flag, 1);
    } else if (mistake == 3) {
      device::store_release<Scope::kBlock>(flag, 1);
    } else {
      device::store_release<Scope::kDevice>(flag, 1);
    }
    return;
  }
  if (mistake == 2) {
    while (device::load_relaxed<Scope::kDevice>(flag) == 0) {
    }
  } else {
    while (device::load_acquire<Scope::kDevice>(flag) == 0) {
    }
  }
  *out = *slot;
}

void sum_by_atomics(const float* x, float* sum) {
  device::add_relaxed<Scope::kDevice>(sum, x[blockIdx.x * blockDim.x + threadIdx.x]);
}

namespace {

void fence_of(Scope scope) {
  if (scope == Scope::kBlock) {
    device::fence<Scope::kBlock>();
  } else if (scope == Scope::kDevice) {
    device::fence<Scope::kDevice>();
  } else if (scope == Scope::kSystem) {
    device::fence<Scope::kSystem>();
  }
}

}  // namespace

void message_by_fences(const float* x, float* slot, std::uint32_t* flag, float* out, Scope before,
                       Scope after) {
  if (blockIdx.x + threadIdx.x == 0) {
    *slot = *x;
    fence_of(before);
    device::store_relaxed<Scope::kDevice>(flag, 1);
    return;
  }
  while (device::load_relaxed<Scope::kDevice>(flag) == 0) {
  }
  fence_of(after);
  *out = *slot;
}

void arrivals(std::uint32_t* numbers, std::uint32_t* counter, std::uint32_t* seen,
              std::uint32_t* sum, bool reaches_device) {
  const unsigned all = gridDim.x * blockDim.x;
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  numbers[i] = i + 1;
  seen[i] = reaches_device ? device::add_acquire_release<Scope::kDevice>(counter, 1)
                           : device::add_acquire_release<Scope::kBlock>(counter, 1);
  if (seen[i] + 1 == all - 3) {  // the counter begins 3 below 0
    *sum = 0;
    for (unsigned j = 0; j < all; ++j) {
      *sum += numbers[j];
    }
  }
}

void times_of_two_blocks(std::uint64_t* times, std::uint32_t* flag) {
  if (blockIdx.x == 0) {
    times[0] = device::nanoseconds();
    device::store_release<Scope::kDevice>(flag, 1);
  } else {
    while (device::load_acquire<Scope::kDevice>(flag) == 0) {
    }
    times[1] = device::nanoseconds();
  }
}

void wait_by_the_time(std::uint64_t nanoseconds, std::uint64_t* out) {
  const std::uint64_t start = device::nanoseconds();
  std::uint64_t now = start;
  while (now - start < nanoseconds) {
    now = device::nanoseconds();
  }
  out[threadIdx.x] = now - start;
}

void powers_of_2(const float* x, float* out) {
  out[threadIdx.x] = device::power_of_2(x[threadIdx.x]);
}

void copies(const float* x, float* out, unsigned read_bytes, bool waits) {
  Numbers& shared = device::static_shared<Numbers>();
  device::copy_async<16>(shared.values + 4 * threadIdx.x, x + 4 * threadIdx.x, read_bytes);
  device::copy_commit();
  if (waits) {
    device::copy_wait<0>();
  }
  for (unsigned i = 0; i < 4; ++i) {
    out[4 * threadIdx.x + i] = shared.values[4 * threadIdx.x + i];
  }
}

void two_stage_copies(const float* x, float* out, bool waits_for_both) {
  Numbers& shared = device::static_shared<Numbers>();
  device::copy_async<4>(shared.values, x);
  device::copy_commit();
  device::copy_async<4>(shared.values + 1, x + 1);
  device::copy_commit();
  device::copy_wait<1>();
  out[0] = shared.values[0];
  if (waits_for_both) {
    device::copy_wait<0>();
  }
  out[1] = shared.values[1];
}

// A producer (warp 0) and a consumer (warp 1) over two slots, by mbarriers and their parity.
void ring(const float* x, float* out, int steps, unsigned parity_mistake) {
  Ring& shared = device::static_shared<Ring>();
  if (threadIdx.x == 0) {
    for (unsigned slot = 0; slot < 2; ++slot) {
      device::mbarrier_init(&shared.full[slot], 1);
      device::mbarrier_init(&shared.empty[slot], 1);
    }
  }
  __syncthreads();
  const bool is_producer = threadIdx.x == 0;
  if (!is_producer && threadIdx.x != 32) {
    return;
  }
  for (int step = 0; step < steps; ++step) {
    const int slot = step % 2;
    const unsigned parity = static_cast<unsigned>(step / 2) % 2;
    if (is_producer) {
      device::mbarrier_wait(&shared.empty[slot], parity ^ 1U ^ parity_mistake);
      shared.values[slot] = x[step];
      device::mbarrier_arrive(&shared.full[slot]);
    } else {
      device::mbarrier_wait(&shared.full[slot], parity);
      out[step] = shared.values[slot];
      device::mbarrier_arrive(&shared.empty[slot]);
    }
  }
}

// A phase ends when the arrivals and the bytes are complete, not before.
void transactions(unsigned* order) {
  Ring& shared = device::static_shared<Ring>();
  if (threadIdx.x == 0) {
    device::mbarrier_init(&shared.full[0], 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    device::mbarrier_arrive_expect(&shared.full[0], 64);
    order[0] = emulator::mbarrier_test_wait(&shared.full[0], 0) ? 1 : 0;
    emulator::mbarrier_complete_bytes(&shared.full[0], 48);
    order[1] = emulator::mbarrier_test_wait(&shared.full[0], 0) ? 1 : 0;
    emulator::mbarrier_complete_bytes(&shared.full[0], 16);
    order[2] = emulator::mbarrier_test_wait(&shared.full[0], 0) ? 1 : 0;
    order[3] = emulator::mbarrier_test_wait(&shared.full[0], 1) ? 1 : 0;
  }
}

void matrices(const std::uint16_t* source, std::uint32_t* out, bool is_transposed, unsigned shift) {
  auto* shared = reinterpret_cast<std::uint16_t*>(device::dynamic_shared());
  for (unsigned i = 0; i < 8; ++i) {
    shared[threadIdx.x * 8 + i] = source[threadIdx.x * 8 + i];
  }
  __syncthreads();
  std::uint32_t registers[4];
  const std::uint16_t* row = shared + threadIdx.x * 8 + shift;
  if (is_transposed) {
    device::load_matrices_transposed(registers, row);
  } else {
    device::load_matrices(registers, row);
  }
  for (unsigned i = 0; i < 4; ++i) {
    out[threadIdx.x * 4 + i] = registers[i];
  }
}

void tensor_core(const std::uint32_t* a, const std::uint32_t* b, float* sums, bool is_bfloat16) {
  std::uint32_t a_part[4], b_part[2];
  float sum[4];
  for (unsigned i = 0; i < 4; ++i) {
    a_part[i] = a[threadIdx.x * 4 + i];
    sum[i] = sums[threadIdx.x * 4 + i];
  }
  for (unsigned i = 0; i < 2; ++i) {
    b_part[i] = b[threadIdx.x * 2 + i];
  }
  if (is_bfloat16) {
    device::multiply_add<device::Half::kBfloat16>(sum, a_part, b_part);
  } else {
    device::multiply_add<device::Half::kFloat16>(sum, a_part, b_part);
  }
  for (unsigned i = 0; i < 4; ++i) {
    sums[threadIdx.x * 4 + i] = sum[i];
  }
}

}  // namespace gt::testing
