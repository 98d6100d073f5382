#include "cuda/host/collective_calls.h"

#include <stdexcept>

#include "cuda/kernels.h"

namespace gt::cuda {
namespace {

constexpr unsigned kThreads = 256;

using Run = void(CollectivePeers, CollectiveCall);

Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }

Grid grid_of(std::uint32_t first_rank, std::uint32_t ranks, const LocalRanks& local) {
  if (ranks < 1 || ranks > kRanksMax || local.count < 1 || local.blocks < 1 ||
      first_rank + local.count > ranks) {
    throw std::invalid_argument(message("collective: ", local.blocks, " blocks for ", local.count,
                                        " ranks from ", first_rank, " on, of ", ranks, "; up to ",
                                        std::uint32_t{kRanksMax}, " ranks"));
  }
  Grid grid;
  grid.blocks[0] = local.blocks;
  grid.blocks[1] = local.count;
  grid.threads[0] = kThreads;
  grid.is_cooperative = true;
  return grid;
}

// Kernels in the order float32, bfloat16, float16.
const Kernel<Run>& summing(const Kernel<Run> (&kernels)[3], Element element) {
  switch (element) {
    case Element::kFloat32:
      return kernels[0];
    case Element::kBfloat16:
      return kernels[1];
    case Element::kFloat16:
      return kernels[2];
    default:
      throw DtypeError(message("collective: no CUDA kernel sums ", element_name(element)));
  }
}

Kernel<Run> kernel_of(Collective what, Element element) {
  constexpr Kernel<Run> kOneShot[3] = {GT_KERNEL("all_reduce", gt_all_reduce_one_shot_f32),
                                       GT_KERNEL("all_reduce", gt_all_reduce_one_shot_bf16),
                                       GT_KERNEL("all_reduce", gt_all_reduce_one_shot_f16)};
  constexpr Kernel<Run> kTwoShot[3] = {GT_KERNEL("all_reduce", gt_all_reduce_two_shot_f32),
                                       GT_KERNEL("all_reduce", gt_all_reduce_two_shot_bf16),
                                       GT_KERNEL("all_reduce", gt_all_reduce_two_shot_f16)};
  constexpr Kernel<Run> kScatter[3] = {GT_KERNEL("all_reduce", gt_reduce_scatter_f32),
                                       GT_KERNEL("all_reduce", gt_reduce_scatter_bf16),
                                       GT_KERNEL("all_reduce", gt_reduce_scatter_f16)};
  const bool is_narrow = element_bytes(element) == 2;
  switch (what) {
    case Collective::kAllReduceOneShot:
      return summing(kOneShot, element);
    case Collective::kAllReduceTwoShot:
      return summing(kTwoShot, element);
    case Collective::kReduceScatter:
      return summing(kScatter, element);
    case Collective::kAllGather:
      return is_narrow ? GT_KERNEL("gather", gt_all_gather_b16)
                       : GT_KERNEL("gather", gt_all_gather_b32);
    case Collective::kBroadcast:
      return is_narrow ? GT_KERNEL("gather", gt_broadcast_b16)
                       : GT_KERNEL("gather", gt_broadcast_b32);
  }
  __builtin_unreachable();
}

// Elements that a slot must hold.
std::int64_t slot_elements(Collective what, const CollectiveCall& call) {
  switch (what) {
    case Collective::kAllReduceTwoShot:
      return 2 * call.elements;
    case Collective::kReduceScatter:
      return call.ranks * call.elements;
    case Collective::kAllReduceOneShot:
    case Collective::kAllGather:
    case Collective::kBroadcast:
      return call.elements;
  }
  __builtin_unreachable();
}

}  // namespace

void run_collective(Launcher& launcher, Collective what, Element element,
                    const CollectivePeers& peers, const CollectiveCall& given,
                    const LocalRanks& local) {
  const auto bytes = static_cast<std::int64_t>(element_bytes(element));
  if (bytes == 1) {
    throw DtypeError(message("collective: no CUDA kernel moves ", element_name(element)));
  }
  const Kernel<Run> kernel = kernel_of(what, element);
  const Grid grid = grid_of(given.first_rank, given.ranks, local);
  CollectiveCall call = given;
  if (call.elements < 0 || slot_elements(what, call) * bytes > call.slot_bytes ||
      call.slot_bytes % 16 != 0 || call.root >= call.ranks) {
    throw std::invalid_argument(message("collective: ", call.elements, " elements of ", bytes,
                                        " bytes for ", call.ranks, " ranks, root ", call.root,
                                        ", through slots of ", call.slot_bytes, " bytes"));
  }
  if (bytes != 2) {
    call.elements *= bytes / 4;  // 8 bytes move as two elements of 4; sums have 4
  }
  const int device = launcher.device_of("collective", {address_of(peers.input[call.first_rank]),
                                                       address_of(peers.output[call.first_rank]),
                                                       address_of(peers.error[call.first_rank])});
  launcher.launch(kernel, grid, {device, local.queue_stream}, peers, call);
}

void run_exchange(Launcher& launcher, std::size_t element_bytes, const ExchangePeers& peers,
                  const ExchangeCall& call, const LocalRanks& local) {
  const Grid grid = grid_of(call.first_rank, call.ranks, local);
  for (std::uint32_t rank = call.first_rank; rank < call.first_rank + local.count; ++rank) {
    for (const Message& one : {call.send[rank], call.receive[rank]}) {
      if (one.peer != kNobody && (one.peer >= call.ranks || one.peer == rank || one.elements < 0)) {
        throw std::invalid_argument(message("exchange: rank ", rank, " of ", call.ranks, " and ",
                                            one.peer, ", ", one.elements, " elements"));
      }
    }
  }
  if (call.slot_elements < 1 || (element_bytes != 2 && element_bytes != 4)) {
    throw std::invalid_argument(
        message("exchange: elements of ", element_bytes, " bytes, slots of ", call.slot_elements));
  }
  const int device = launcher.device_of("exchange", {address_of(peers.input[call.first_rank]),
                                                     address_of(peers.output[call.first_rank]),
                                                     address_of(peers.error[call.first_rank])});
  const Queue queue{device, local.queue_stream};
  if (element_bytes == 2) {
    launcher.launch(GT_KERNEL("exchange", gt_exchange_b16), grid, queue, peers, call);
  } else {
    launcher.launch(GT_KERNEL("exchange", gt_exchange_b32), grid, queue, peers, call);
  }
}

}  // namespace gt::cuda
