// Several calls of an all-reduce in one launch, so that ranks can run ahead of each other.
#include "cuda/all_reduce.h"

namespace gt::testing {

void repeated_all_reduce(AllReducePeers peers, AllReduceCall call, std::uint32_t calls,
                         bool is_two_shot) {
  for (std::uint32_t i = 0; i < calls; ++i) {
    if (is_two_shot) {
      all_reduce_two_shot(peers, call);
    } else {
      all_reduce_one_shot(peers, call);
    }
    ++call.call;
  }
}

}  // namespace gt::testing
