// Collectives over CUDA IPC for Python: memory that processes share, and launches. No computation
// here. gt/worker/cuda/collectives.py defines the layout of the memory.
#include "bind/cuda_collectives.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bind/cuda.h"
#include "cuda/host/collective_calls.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

using cuda::Address;
using cuda::Collective;
using cuda::Launcher;

using Addresses = std::vector<Address>;  // one for each rank; 0 where it is not read
using Peers = std::tuple<Addresses, Addresses, Addresses, Addresses, Addresses>;
using Boxes = std::tuple<Addresses, Addresses, Addresses, Addresses, Addresses, Addresses>;
// First rank of the launch, number of ranks, number of blocks.
using Local = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;
using Slots = std::tuple<std::int64_t, std::uint64_t>;  // bytes of staging; timeout in nanoseconds
using OneMessage = std::optional<std::tuple<std::uint32_t, std::uint32_t, std::int64_t>>;

Collective collective_of(const std::string& name) {
  constexpr std::pair<const char*, Collective> kAll[] = {
      {"all_reduce_one_shot", Collective::kAllReduceOneShot},
      {"all_reduce_two_shot", Collective::kAllReduceTwoShot},
      {"reduce_scatter", Collective::kReduceScatter},
      {"all_gather", Collective::kAllGather},
      {"broadcast", Collective::kBroadcast}};
  for (const auto& [known, collective] : kAll) {
    if (name == known) {
      return collective;
    }
  }
  throw std::invalid_argument(message("no CUDA collective is named ", name));
}

template <class T>
void fill(T* (&table)[kRanksMax], const Addresses& addresses, std::size_t ranks) {
  if (addresses.size() != ranks || ranks > kRanksMax) {
    throw std::invalid_argument(message("collective: ", addresses.size(), " addresses for ", ranks,
                                        " ranks; up to ", std::uint32_t{kRanksMax}));
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    table[rank] = reinterpret_cast<T*>(addresses[rank]);
  }
}

void run_collective(Launcher& launcher, const std::string& name, const std::string& dtype,
                    const Peers& tables, const Local& local, std::uint32_t number,
                    std::uint32_t root, std::int64_t elements, const Slots& slots,
                    std::uint32_t error_base, std::uintptr_t stream) {
  const auto& [input, output, staging, flags, error] = tables;
  const auto& [first_rank, count, blocks] = local;
  const auto& [slot_bytes, timeout] = slots;
  const std::size_t ranks = flags.size();
  CollectivePeers peers{};
  fill(peers.input, input, ranks);
  fill(peers.output, output, ranks);
  fill(peers.staging, staging, ranks);
  fill(peers.flags, flags, ranks);
  fill(peers.error, error, ranks);
  const CollectiveCall call{
      first_rank, static_cast<std::uint32_t>(ranks), number, root, error_base, elements, slot_bytes,
      timeout};
  cuda::run_collective(launcher, collective_of(name), cuda_element(dtype), peers, call,
                       {count, blocks, stream});
}

Message message_of(const OneMessage& given) {
  return given ? std::make_from_tuple<Message>(*given) : Message{kNobody, 0, 0};
}

void run_exchange(Launcher& launcher, std::size_t element_bytes, const Boxes& tables,
                  const Local& local, const std::vector<OneMessage>& sends,
                  const std::vector<OneMessage>& receives, const Slots& slots,
                  std::uintptr_t stream) {
  const auto& [input, output, boxes, arrived, taken, error] = tables;
  const auto& [first_rank, count, blocks] = local;
  const std::size_t ranks = boxes.size();
  ExchangePeers peers{};
  fill(peers.input, input, ranks);
  fill(peers.output, output, ranks);
  fill(peers.boxes, boxes, ranks);
  fill(peers.arrived, arrived, ranks);
  fill(peers.taken, taken, ranks);
  fill(peers.error, error, ranks);
  if (sends.size() != ranks || receives.size() != ranks) {
    throw std::invalid_argument(message("exchange: ", sends.size(), " and ", receives.size(),
                                        " messages for ", ranks, " ranks"));
  }
  ExchangeCall call{};
  call.first_rank = first_rank;
  call.ranks = static_cast<std::uint32_t>(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    call.send[rank] = message_of(sends[rank]);
    call.receive[rank] = message_of(receives[rank]);
  }
  call.slot_elements = std::get<0>(slots);
  call.timeout_nanoseconds = std::get<1>(slots);
  cuda::run_exchange(launcher, element_bytes, peers, call, {count, blocks, stream});
}

}  // namespace

void bind_cuda_collectives(nb::class_<Launcher>& cuda) {
  cuda.def("allocate", &Launcher::allocate, "device"_a, "bytes"_a,
           "Device memory of zeros, which share() can name; its address.");
  cuda.def("release", &Launcher::release, "device"_a, "address"_a, "Frees what allocate() made.");
  cuda.def(
      "share",
      [](Launcher& launcher, int device, Address address) {
        const std::string handle = launcher.share(device, address);
        return nb::bytes(handle.data(), handle.size());
      },
      "device"_a, "address"_a, "A handle by which processes of this host open the memory.");
  cuda.def(
      "open_shared",
      [](Launcher& launcher, int device, const nb::bytes& handle) {
        return launcher.open_shared(device, std::string(handle.c_str(), handle.size()));
      },
      "device"_a, "handle"_a, "The address of another process' memory.");
  cuda.def("close_shared", &Launcher::close_shared, "device"_a, "address"_a,
           "Closes what open_shared() opened.");
  cuda.def("collective", &run_collective, "name"_a, "dtype"_a, "peers"_a, "local"_a, "number"_a,
           "root"_a, "elements"_a, "slots"_a, "error_base"_a, "stream"_a,
           nb::call_guard<nb::gil_scoped_release>(),
           R"(A collective of memory that all ranks can reach; cuda/collectives.h has the rules.

Args:
    name: all_reduce_one_shot, all_reduce_two_shot, reduce_scatter, all_gather or broadcast.
    peers: Addresses by rank: input, output, staging, flags, error.
    local: The first rank of this launch, how many, and the blocks of each.
    number: Of the call, 1 at first.
    slots: Bytes of a slot of staging, and how long to wait for a rank, in nanoseconds.
    error_base: An error is this + 1 + the rank that did not come.)");
  cuda.def("exchange", &run_exchange, "element_bytes"_a, "peers"_a, "local"_a, "sends"_a,
           "receives"_a, "slots"_a, "stream"_a, nb::call_guard<nb::gil_scoped_release>(),
           R"(Messages between ranks; cuda/exchange.h has the rules.

Args:
    peers: Addresses by rank: input, output, boxes, arrived, taken, error.
    local: As for collective.
    sends: By rank: the other rank, the number of the first chunk, elements; or None.
    receives: Likewise.
    slots: Elements of a slot of a box, and how long to wait for a rank, in nanoseconds.)");
}

}  // namespace gt
