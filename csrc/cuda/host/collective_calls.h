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

// The ranks [first_rank, first_rank + count) of a call are this launch's; blocks are alike in all
// launches of a group.
struct LocalRanks {
  std::uint32_t count, blocks;
  std::uintptr_t queue_stream;
};

// all-gather and broadcast: any element of 2, 4 or 8 bytes; else float32 bfloat16 float16.
void run_collective(Launcher& launcher, Collective what, Element element,
                    const CollectivePeers& peers, const CollectiveCall& call,
                    const LocalRanks& local);
// Elements of 2 or 4 bytes.
void run_exchange(Launcher& launcher, std::size_t element_bytes, const ExchangePeers& peers,
                  const ExchangeCall& call, const LocalRanks& local);

}  // namespace gt::cuda
