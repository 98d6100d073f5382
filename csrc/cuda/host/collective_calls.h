// Launches of collectives over memory that all ranks can reach. All throw CudaError, DtypeError, or
// std::invalid_argument with the sizes.
#pragma once

#include "cuda/exchange.h"
#include "cuda/host/worker_calls.h"

namespace gt::cuda {

enum class Collective {
  kAllReduceOneShot,
  kAllReduceTwoShot,
  kReduceScatter,
  kAllGather,
  kBroadcast
};

// A launch runs the ranks [first_rank, first_rank + count) of a call; all launches of a group have
// the same number of blocks.
struct LocalRanks {
  std::uint32_t count, blocks;
  std::uintptr_t queue_stream;
};

// All-gather and broadcast take elements of 2, 4 or 8 bytes; reductions float32, bfloat16, float16.
void run_collective(Launcher& launcher, Collective what, Element element,
                    const CollectivePeers& peers, const CollectiveCall& call,
                    const LocalRanks& local);
// Takes elements of 2 or 4 bytes.
void run_exchange(Launcher& launcher, std::size_t element_bytes, const ExchangePeers& peers,
                  const ExchangeCall& call, const LocalRanks& local);

}  // namespace gt::cuda
