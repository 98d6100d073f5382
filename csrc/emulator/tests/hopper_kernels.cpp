#include "emulator/tests/hopper_kernels.h"

namespace gt::testing {
namespace {

struct Words {
  unsigned values[32];
};
struct Mailbox {
  std::uint64_t barrier;
  float value;
};

void cluster_sync() {
  device::cluster_arrive();
  device::cluster_wait();
}

std::uint16_t* operand_memory(unsigned number) {
  return reinterpret_cast<std::uint16_t*>(device::dynamic_shared()) + number * kImageElements;
}

void fill(std::uint16_t* to, const std::uint16_t* image) {
  for (unsigned i = threadIdx.x; i < kImageElements; i += blockDim.x) {
    to[i] = image[i];
  }
}

template <unsigned swizzle, bool turned_a, bool turned_b, device::Half type, unsigned count>
void multiply(float (&sums)[count], const ProductCase& call, bool adds) {
  const std::uint64_t a =
      device::matrix_descriptor<swizzle>(operand_memory(0), call.leading_a, call.stride_a);
  const std::uint64_t b =
      device::matrix_descriptor<swizzle>(operand_memory(1), call.leading_b, call.stride_b);
  device::warpgroup_multiply_add<type, turned_a, turned_b>(sums, a, b, adds);
}

template <unsigned swizzle, device::Half type, unsigned count>
void multiply_turned(float (&sums)[count], const ProductCase& call, bool adds) {
  if (call.is_turned_a && call.is_turned_b) {
    multiply<swizzle, true, true, type>(sums, call, adds);
  } else if (call.is_turned_a) {
    multiply<swizzle, true, false, type>(sums, call, adds);
  } else if (call.is_turned_b) {
    multiply<swizzle, false, true, type>(sums, call, adds);
  } else {
    multiply<swizzle, false, false, type>(sums, call, adds);
  }
}

template <device::Half type, unsigned count>
void multiply_any(float (&sums)[count], const ProductCase& call, bool adds) {
  if (call.swizzle == 128) {
    multiply_turned<128, type>(sums, call, adds);
  } else if (call.swizzle == 64) {
    multiply_turned<64, type>(sums, call, adds);
  } else if (call.swizzle == 32) {
    multiply_turned<32, type>(sums, call, adds);
  } else {
    multiply_turned<0, type>(sums, call, adds);
  }
}

}  // namespace

void cluster_exchange(unsigned* out, int mistake) {
  Words& shared = device::static_shared<Words>();
  const unsigned rank = device::cluster_rank();
  shared.values[threadIdx.x] = 100 * rank + threadIdx.x;
  if (mistake != 1) {
    cluster_sync();
  }
  const Words& other = *device::shared_of_rank(&shared, rank ^ 1U);
  out[32 * blockIdx.x + threadIdx.x] = other.values[threadIdx.x];
  if (mistake != 2) {
    cluster_sync();
  }
}

void remote_arrival(const float* x, float* out, bool reaches) {
  Mailbox& shared = device::static_shared<Mailbox>();
  const unsigned rank = device::cluster_rank();
  if (rank == 0) {
    device::mbarrier_init(&shared.barrier, 1);
    device::fence_mbarrier_init();
  }
  cluster_sync();
  if (rank == 1) {
    device::shared_of_rank(&shared, 0)->value = *x;
    device::mbarrier_arrive_at(&shared.barrier, 0);
  } else {
    if (reaches) {
      device::mbarrier_wait_cluster(&shared.barrier, 0);
    } else {
      device::mbarrier_wait(&shared.barrier, 0);
    }
    *out = shared.value;
  }
  cluster_sync();
}

void copied_box(TensorMap map, std::uint16_t* out, BoxCopy copy, int mistake) {
  std::uint64_t& barrier = device::static_shared<std::uint64_t>();
  unsigned char* box = device::dynamic_shared();
  const auto [x, y, z] = copy.place;
  if (copy.prefetches) {
    device::prefetch_map(&map);
  }
  if (threadIdx.x == 0) {
    device::mbarrier_init(&barrier, 1);
    if (mistake != 1) {
      device::fence_mbarrier_init();
    }
  }
  cluster_sync();
  if (threadIdx.x == 0) {
    device::mbarrier_arrive_expect(&barrier, copy.expected_bytes);
    if (copy.ranks == 0 && copy.dims == 2) {
      device::copy_box(box, &map, &barrier, x, y);
    } else if (copy.ranks == 0) {
      device::copy_box(box, &map, &barrier, x, y, z);
    } else if (device::cluster_rank() == 0) {
      device::copy_box_to_ranks(box, &map, &barrier, copy.ranks, x, y, z);
    }
  }
  device::mbarrier_wait(&barrier, mistake == 2 ? 1 : 0);
  const auto* halves = reinterpret_cast<const std::uint16_t*>(box);
  for (unsigned i = threadIdx.x; i < copy.elements; i += blockDim.x) {
    out[blockIdx.x * copy.elements + i] = halves[i];
  }
  cluster_sync();
}

void prefetch_beside_a_write(TensorMap* memory) {
  if (threadIdx.x == 0) {
    device::prefetch_map(memory);
  } else {
    *reinterpret_cast<unsigned*>(memory) = 1;
  }
}

void stored_pairs(float* out, unsigned shift) {
  unsigned char* shared = device::dynamic_shared();
  const auto first = static_cast<float>(2 * threadIdx.x);
  device::store_pair(reinterpret_cast<std::uint64_t*>(shared + 8 * threadIdx.x + shift), first,
                     first + 1);
  __syncthreads();
  const float* values = reinterpret_cast<const float*>(shared);
  out[threadIdx.x] = values[threadIdx.x];
  out[32 + threadIdx.x] = values[32 + threadIdx.x];
}

void wide_product(const std::uint16_t* a, const std::uint16_t* b, float* out, ProductCase call,
                  ProductMistake mistake) {
  fill(operand_memory(0), a);
  fill(operand_memory(1), b);
  if (mistake != ProductMistake::kNoProxyFence) {
    device::fence_async();
  }
  __syncthreads();
  float sums[64];
  if (mistake != ProductMistake::kNoRegisterFence) {
    device::warpgroup_fence();
  }
  multiply_any<device::Half::kBfloat16>(sums, call, false);
  device::warpgroup_commit();
  multiply_any<device::Half::kBfloat16>(sums, call, true);
  device::warpgroup_commit();
  if (mistake == ProductMistake::kEarlyOverwrite) {
    operand_memory(0)[threadIdx.x] = 0;
  }
  if (mistake == ProductMistake::kWaitsForOneLess) {
    device::warpgroup_wait<1>();
  } else if (mistake != ProductMistake::kNoWait) {
    device::warpgroup_wait_all(sums);
  }
  for (unsigned i = 0; i < 64; ++i) {
    out[threadIdx.x * 64 + i] = sums[i];
  }
}

void widest_product(const std::uint16_t* a, const std::uint16_t* b, float* out, ProductCase call) {
  fill(operand_memory(0), a);
  fill(operand_memory(1), b);
  device::fence_async();
  __syncthreads();
  float sums[128];
  device::warpgroup_fence();
  multiply_any<device::Half::kFloat16>(sums, call, false);
  device::warpgroup_commit();
  device::warpgroup_wait_all(sums);
  for (unsigned i = 0; i < 128; ++i) {
    out[threadIdx.x * 128 + i] = sums[i];
  }
}

void trade_registers(unsigned* out, bool gives) {
  if (threadIdx.x < 128) {
    if (gives) {
      device::lower_registers<40>();
    }
  } else {
    device::raise_registers<232>();
  }
  out[threadIdx.x] = 1;
}

}  // namespace gt::testing
