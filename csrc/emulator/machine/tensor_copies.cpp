// Tensor copies (TMA): PTX ISA 5.5 (tensors, boxes, swizzle) and cp.async.bulk.tensor. A copy
// arrives at any time after its start; until then its destination is in flight.
#include <cstring>
#include <vector>

#include "emulator/machine/instructions.h"
#include "emulator/machine/sync_state.h"
#include "emulator/machine/tensor_map.h"

namespace gt::emulator {
namespace {

constexpr std::uint64_t kMapMagic = 0x4754'7465'6E73'6F72;
constexpr std::size_t kChunk = 16;
constexpr std::uintptr_t kTargetAlignment = 128;

struct EncodedFacts {
  std::uint64_t magic;
  TensorFacts facts;
};
static_assert(sizeof(EncodedFacts) <= sizeof(TensorMap));

std::size_t box_bytes(const TensorFacts& facts) {
  return std::size_t{facts.box[0]} * facts.box[1] * facts.box[2] * facts.box[3] *
         facts.element_bytes;
}

// One row of the box along dim 0: the part of it inside the tensor, and the source of that part.
struct BoxRow {
  std::uint64_t from = 0;
  std::size_t skipped = 0;  // bytes before the first one inside
  std::size_t bytes = 0;
};

BoxRow row_of(const TensorFacts& facts, const std::int64_t (&at)[kTensorDimsMax], unsigned in_1,
              unsigned in_2, unsigned in_3) {
  const std::int64_t place[] = {at[1] + in_1, at[2] + in_2, at[3] + in_3};
  BoxRow row;
  row.from = facts.address;
  for (unsigned dim = 1; dim < kTensorDimsMax; ++dim) {
    if (place[dim - 1] < 0 || place[dim - 1] >= static_cast<std::int64_t>(facts.sizes[dim])) {
      return {};
    }
    row.from += static_cast<std::uint64_t>(place[dim - 1]) * facts.strides[dim];
  }
  const std::int64_t first = std::max<std::int64_t>(at[0], 0);
  const std::int64_t last =
      std::min<std::int64_t>(at[0] + facts.box[0], static_cast<std::int64_t>(facts.sizes[0]));
  if (first >= last) {
    return {};
  }
  row.from += static_cast<std::uint64_t>(first) * facts.element_bytes;
  row.skipped = static_cast<std::size_t>(first - at[0]) * facts.element_bytes;
  row.bytes = static_cast<std::size_t>(last - first) * facts.element_bytes;
  return row;
}

// Reads the box in the layout of shared memory without the swizzle, after checking that it may be
// read.
std::vector<unsigned char> read_box(const TensorFacts& facts, const std::int32_t* coordinates,
                                    std::uintptr_t place) {
  std::int64_t at[kTensorDimsMax] = {};
  for (unsigned dim = 0; dim < facts.dims; ++dim) {
    at[dim] = coordinates[dim];
  }
  std::vector<unsigned char> box(box_bytes(facts), 0);
  unsigned char* to = box.data();
  const unsigned rows = facts.box[1] * facts.box[2] * facts.box[3];
  for (unsigned number = 0; number < rows; ++number) {
    const unsigned in_2 = number / facts.box[1] % facts.box[2];
    const BoxRow row =
        row_of(facts, at, number % facts.box[1], in_2, number / facts.box[1] / facts.box[2]);
    for (std::size_t i = 0; i < row.bytes; i += facts.element_bytes) {
      checked_touch({row.from + i, facts.element_bytes, Access::kRead, Scope::kPlain, place});
    }
    std::memcpy(to + row.skipped, reinterpret_cast<const void*>(row.from), row.bytes);
    to += std::size_t{facts.box[0]} * facts.element_bytes;
  }
  return box;
}

void check_target(const TensorFacts& facts, std::uintptr_t to) {
  if (to % kTargetAlignment != 0) {
    fail(FaultKind::kMisaligned, "cp.async.bulk.tensor: the destination has to begin at 128 bytes");
  }
  if (facts.swizzle_bytes != 0 && facts.box[0] * facts.element_bytes != facts.swizzle_bytes) {
    fail(FaultKind::kMisuse, message("cp.async.bulk.tensor: rows of ",
                                     facts.box[0] * facts.element_bytes, " bytes in a swizzle of ",
                                     facts.swizzle_bytes, ", which the emulator does not know"));
  }
}

// Starts the copy into one block.
void begin_copy(const TensorFacts& facts, const std::vector<unsigned char>& box, std::uintptr_t to,
                std::uint64_t* barrier, std::uintptr_t place) {
  const Epoch epoch = copy_epoch(barrier);
  const Toucher toucher{epoch, current->block->number, current->block->cluster->number,
                        current->clock, true};
  std::exception_ptr fault;
  try {
    for (std::size_t i = 0; i < box.size(); i += kChunk) {
      const Region& region =
          memory().touch({to + i, kChunk, Access::kWrite, Scope::kPlain, place}, toucher);
      if (!region.is_shared()) {
        throw Fault(FaultKind::kMisuse,
                    "cp.async.bulk.tensor: the destination is not in shared memory");
      }
    }
    // The copy reads the mbarrier, whose initialization must be visible to it.
    memory().touch({reinterpret_cast<std::uintptr_t>(barrier), sizeof(*barrier), Access::kRead,
                    Scope::kBlock, place},
                   toucher);
  } catch (...) {
    fault = std::current_exception();
  }
  if (fault) {
    machine->stop(fault);
  }
  memory().set_in_flight(to, box.size(), true);
  const auto at = reinterpret_cast<std::uintptr_t>(barrier);
  machine->add_arrival({to, box.size(), [facts, box, to, at, epoch] {
                          memory().set_in_flight(to, box.size(), false);
                          for (std::size_t i = 0; i < box.size(); i += kChunk) {
                            void* chunk =
                                reinterpret_cast<void*>(swizzled(to + i, facts.swizzle_bytes));
                            std::memcpy(chunk, box.data() + i, kChunk);
                          }
                          complete_copy(at, static_cast<std::uint32_t>(box.size()), epoch);
                        }});
}

}  // namespace

std::string refusal(const TensorFacts& facts) {
  if (facts.dims < 1 || facts.dims > kTensorDimsMax) {
    return message(facts.dims, " dims; the emulator knows 1 to ", std::uint32_t{kTensorDimsMax});
  }
  if (facts.address % 16 != 0) {
    return "the address is no multiple of 16";
  }
  for (unsigned dim = 0; dim < facts.dims; ++dim) {
    if (facts.sizes[dim] < 1 || facts.sizes[dim] > std::uint64_t{1} << 32) {
      return message("size ", facts.sizes[dim], " of dim ", dim, " is not in [1, 2^32]");
    }
    if (facts.box[dim] < 1 || facts.box[dim] > 256) {
      return message("box ", facts.box[dim], " of dim ", dim, " is not in [1, 256]");
    }
    if (dim > 0 && (facts.strides[dim] % 16 != 0 || facts.strides[dim] >= std::uint64_t{1} << 40)) {
      return message("stride ", facts.strides[dim], " of dim ", dim,
                     " is no multiple of 16 below 2^40");
    }
  }
  const std::uint32_t inner = facts.box[0] * facts.element_bytes;
  if (inner % 16 != 0 || (facts.swizzle_bytes != 0 && inner > facts.swizzle_bytes)) {
    return message("rows of ", inner, " bytes in a swizzle of ", facts.swizzle_bytes);
  }
  return "";
}

TensorMap encode(const TensorFacts& facts) {
  const EncodedFacts encoded{kMapMagic, facts};
  TensorMap map{};
  std::memcpy(&map, &encoded, sizeof(encoded));
  return map;
}

bool decode(const void* map, TensorFacts& facts) {
  EncodedFacts encoded;
  std::memcpy(&encoded, map, sizeof(encoded));
  facts = encoded.facts;
  return encoded.magic == kMapMagic;
}

void fence_async() {
  current->clock.fence();
  current->clock.tick(current->number);
}

void copy_box(void* to, const void* map, std::uint64_t* barrier, const std::int32_t* coordinates,
              unsigned rank, unsigned ranks) {
  const auto place = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  TensorFacts facts;
  if (reinterpret_cast<std::uintptr_t>(map) % alignof(TensorMap) != 0 || !decode(map, facts)) {
    fail(FaultKind::kMisuse, "cp.async.bulk.tensor: no tensor map at this address");
  }
  if (facts.dims != rank || ranks == 0 || ranks >> cluster_blocks() != 0) {
    fail(FaultKind::kMisuse,
         message("cp.async.bulk.tensor: ", rank, " coordinates for a tensor of ", facts.dims,
                 " dims, to the ranks 0x", std::hex, ranks, std::dec, " of a cluster of ",
                 cluster_blocks()));
  }
  check_target(facts, reinterpret_cast<std::uintptr_t>(to));
  machine->maybe_yield();
  const std::vector<unsigned char> box = read_box(facts, coordinates, place);
  for (unsigned other = 0; other < cluster_blocks(); ++other) {
    if ((ranks >> other & 1U) != 0) {
      begin_copy(facts, box, reinterpret_cast<std::uintptr_t>(shared_of_rank(to, other)),
                 static_cast<std::uint64_t*>(shared_of_rank(barrier, other)), place);
    }
  }
}

}  // namespace gt::emulator
