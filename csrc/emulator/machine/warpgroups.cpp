// Products of four warps: PTX ISA 9.7.15 (wgmma). A descriptor gives the layout of an operand in
// shared memory (9.7.15.5.1.2). Operands count as being read, and sums as being written, until the
// group has been waited for.
#include <algorithm>
#include <cstring>

#include "emulator/machine/instructions.h"
#include "emulator/machine/place.h"
#include "emulator/machine/sync_state.h"
#include "emulator/machine/tensor_map.h"

namespace gt::emulator {
namespace {

constexpr unsigned kRows = 64;
constexpr unsigned kDepth = 16;
constexpr unsigned kColumnsMax = 256;
constexpr unsigned kChunkElements = 8;
constexpr std::size_t kChunkBytes = 16;
constexpr std::uint64_t kField = 0x3FFF;  // 14 bits of a descriptor, in units of 16 bytes
constexpr std::uint64_t kAddressMax = 0x3FFFF;

std::uintptr_t shared_base() { return reinterpret_cast<std::uintptr_t>(dynamic_shared_storage()); }

// A decoded descriptor: Table "Matrix descriptor format".
struct Layout {
  std::uintptr_t start;
  std::uintptr_t leading, stride;
  unsigned row_bytes;  // row of the swizzle's pattern; 16 without one
  bool is_turned;

  unsigned swizzle_bytes() const { return row_bytes == kChunkBytes ? 0 : row_bytes; }

  // Address of the 16 bytes that hold element (across, depth) and its neighbours along the row.
  // Follows "Canonical layouts", in bytes; m and k number the patterns.
  std::uintptr_t chunk(unsigned across, unsigned depth) const {
    const bool is_plain = row_bytes == kChunkBytes;
    std::uintptr_t at = start;
    if (!is_turned) {
      at += across / 8 * stride + across % 8 * row_bytes;
      at += depth / kChunkElements * (is_plain ? leading : kChunkBytes);
    } else {
      const unsigned wide = row_bytes / 2;  // elements of a pattern's row
      at += across / wide * (is_plain ? stride : leading) + across % wide / kChunkElements * 16;
      at += depth / 8 * (is_plain ? leading : stride) + depth % 8 * row_bytes;
    }
    return swizzled(at, swizzle_bytes());
  }
};

Layout layout_of(const MatrixOperand& operand) {
  constexpr unsigned kRowBytes[] = {16, 128, 64, 32};
  const std::uint64_t bits = operand.descriptor;
  Layout layout{};
  layout.start = shared_base() + (bits & kField) * 16;
  layout.leading = (bits >> 16 & kField) * 16;
  layout.stride = (bits >> 32 & kField) * 16;
  layout.row_bytes = kRowBytes[bits >> 62];
  layout.is_turned = operand.is_turned;
  const unsigned base_offset = bits >> 49 & 7;
  // "Base offset" 0: the pattern of 8 rows begins at a multiple of its size.
  const bool is_inside =
      layout.swizzle_bytes() != 0 && layout.start % (8 * layout.row_bytes) >= 128;
  if (base_offset != 0 || is_inside) {
    fail(FaultKind::kMisuse,
         "wgmma: the operand does not begin in the first 128 bytes of a swizzle's pattern");
  }
  return layout;
}

// Calls back with the address of each 16 bytes and of the (across, depth) of their 8 elements.
template <class F>
void for_each_chunk(const Layout& layout, unsigned extent, F&& call) {
  const unsigned across_step = layout.is_turned ? kChunkElements : 1;
  const unsigned depth_step = layout.is_turned ? 1 : kChunkElements;
  for (unsigned across = 0; across < extent; across += across_step) {
    for (unsigned depth = 0; depth < kDepth; depth += depth_step) {
      call(layout.chunk(across, depth), across, depth);
    }
  }
}

void touch_operand(const MatrixOperand& operand, unsigned extent, const Toucher& toucher,
                   std::uintptr_t place) {
  for_each_chunk(layout_of(operand), extent, [&](std::uintptr_t at, unsigned, unsigned) {
    memory().touch({at, kChunkBytes, Access::kRead, Scope::kPlain, place}, toucher);
  });
}

// Returns values [extent][kDepth].
std::vector<float> read_operand(const MatrixOperand& operand, unsigned extent, Half type) {
  std::vector<float> values(std::size_t{extent} * kDepth);
  for_each_chunk(layout_of(operand), extent,
                 [&](std::uintptr_t at, unsigned across, unsigned depth) {
                   std::uint16_t halves[kChunkElements];
                   std::memcpy(halves, reinterpret_cast<const void*>(at), sizeof(halves));
                   for (unsigned i = 0; i < kChunkElements; ++i) {
                     const unsigned row = across + (operand.is_turned ? i : 0);
                     const unsigned column = depth + (operand.is_turned ? 0 : i);
                     values[row * kDepth + column] = to_float(type, halves[i]);
                   }
                 });
  return values;
}

// Figure "register fragment layout for matrix A": a thread has the rows it has in D. Register 0
// holds columns 2 (l % 4) and 2 (l % 4) + 1, register 1 the row 8 below, registers 2 and 3 the same
// rows 8 columns further.
std::vector<float> rows_of(const WarpgroupProduct& product, Half type) {
  std::vector<float> values(std::size_t{kRows} * kDepth);
  for (unsigned thread = 0; thread < kWarpgroupThreads; ++thread) {
    for (unsigned i = 0; i < 8; ++i) {
      const unsigned row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
      const unsigned column = thread % 4 * 2 + i % 2 + i / 4 * 8;
      const std::uint32_t word = product.rows[thread][i / 2];
      values[row * kDepth + column] =
          to_float(type, static_cast<std::uint16_t>(i % 2 == 0 ? word : word >> 16));
    }
  }
  return values;
}

// Figure "register fragment layout for accumulator matrix D": lane l of warp w has rows 16 w + l /
// 4 and 16 w + l / 4 + 8, and for each j the columns 8 j + 2 (l % 4) and 8 j + 2 (l % 4) + 1.
void execute(const WarpgroupProduct& product) {
  const Half type = product.is_bfloat16 ? Half::kBfloat16 : Half::kFloat16;
  const std::vector<float> a =
      product.is_a_in_registers ? rows_of(product, type) : read_operand(product.a, kRows, type);
  const std::vector<float> b = read_operand(product.b, product.columns, type);
  for (unsigned thread = 0; thread < kWarpgroupThreads; ++thread) {
    float* const sums = product.sums[thread];
    for (unsigned i = 0; i < product.columns / 2; ++i) {
      const unsigned row = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
      const unsigned column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      double sum = product.adds ? double{sums[i]} : 0.0;
      for (unsigned k = 0; k < kDepth; ++k) {
        sum += double{a[row * kDepth + k]} * double{b[column * kDepth + k]};
      }
      sums[i] = static_cast<float>(sum);
    }
  }
}

Warpgroup& warpgroup_of(const Thread& thread) {
  const unsigned number = thread.rank / kWarpgroupThreads;
  if (number >= thread.block->warpgroups.size()) {
    fail(FaultKind::kMisuse, "wgmma: the block has no four warps here");
  }
  Warpgroup& group = thread.block->warpgroups[number];
  if (group.agent == 0) {
    group.agent = machine->add_agent();
  }
  return group;
}

// Records the operation's reads from here on; it is complete when group + 1 groups are.
void begin(Warpgroup& group, std::uintptr_t place) {
  const WarpgroupProduct& product = group.gathering;
  const Epoch epoch{group.agent, static_cast<std::uint32_t>(product.group + 1)};
  const Toucher toucher{epoch, current->block->number, current->block->cluster->number, group.clock,
                        true};
  std::exception_ptr fault;
  try {
    if (!product.is_a_in_registers) {
      touch_operand(product.a, kRows, toucher, place);
    }
    touch_operand(product.b, product.columns, toucher, place);
  } catch (...) {
    fault = std::current_exception();
  }
  if (fault) {
    machine->stop(fault);
  }
  group.products.push_back(product);
}

void check_same(const WarpgroupProduct& one, const WarpgroupProduct& other) {
  if (one.group != other.group || one.columns != other.columns ||
      one.a.descriptor != other.a.descriptor || one.b.descriptor != other.b.descriptor ||
      one.is_a_in_registers != other.is_a_in_registers || one.adds != other.adds) {
    fail(FaultKind::kMisuse, "wgmma.mma_async: the threads of four warps give different operands");
  }
}

void own_sums(const WarpgroupProduct& product, float* sums) {
  const auto begin = reinterpret_cast<std::uintptr_t>(sums);
  const std::size_t bytes = product.columns / 2 * sizeof(float);
  auto& all = current->sums;
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Sums& each) { return each.begin == begin; });
  if (found == all.end()) {
    all.push_back({begin, bytes, product.group});
  } else {
    found->bytes = std::max(found->bytes, bytes);
    found->last_group = product.group;
  }
}

// Joins a thread to an instruction, which starts with the last thread of the four warps.
void gather(const WarpgroupProduct& mine, float* sums, const MatrixRegisters& rows,
            std::uintptr_t place) {
  if (mine.columns % 8 != 0 || mine.columns < 8 || mine.columns > kColumnsMax) {
    fail(FaultKind::kMisuse, message("wgmma.mma_async: n = ", mine.columns));
  }
  if (!current->has_register_fence) {
    fail(FaultKind::kRace, message("wgmma.mma_async takes sums that were touched since the last "
                                   "wgmma.fence\n  at ",
                                   place_name(place)));
  }
  Warpgroup& group = warpgroup_of(*current);
  if (group.arrived == 0) {
    group.gathering = mine;
    group.clock = current->clock;
  }
  check_same(group.gathering, mine);
  group.gathering.sums[current->rank % kWarpgroupThreads] = sums;
  group.gathering.rows[current->rank % kWarpgroupThreads] = rows;
  group.clock.meet(current->clock);
  own_sums(mine, sums);
  if (++group.arrived < kWarpgroupThreads) {
    group.waiting.push_back(current);
    machine->wait([&group] {
      return message("wgmma.mma_async of four warps, where ", group.arrived, " of 128 threads are");
    });
    return;
  }
  begin(group, place);
  group.arrived = 0;
  for (Thread* thread : group.waiting) {
    machine->wake(*thread);
  }
  group.waiting.clear();
}

}  // namespace

std::uint64_t matrix_descriptor(const void* start, unsigned leading_bytes, unsigned stride_bytes,
                                unsigned swizzle_bytes) {
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(start) - shared_base();
  if (offset >= machine->launch.shared_bytes) {
    fail(FaultKind::kMisuse, "wgmma: the operand is not in this block's dynamic shared memory");
  }
  if (offset % 16 != 0 || leading_bytes % 16 != 0 || stride_bytes % 16 != 0) {
    fail(FaultKind::kMisaligned, "wgmma: a descriptor's start and strides are multiples of 16");
  }
  const std::uint64_t mode = swizzle_bytes == 128  ? 1
                             : swizzle_bytes == 64 ? 2
                             : swizzle_bytes == 32 ? 3
                                                   : 0;
  const auto field = [](std::uint64_t bytes) { return (bytes & kAddressMax) >> 4; };
  return field(offset) | field(leading_bytes) << 16 | field(stride_bytes) << 32 | mode << 62;
}

void warpgroup_fence() { current->has_register_fence = true; }

void warpgroup_multiply_add(Half type, unsigned columns, float* sums,
                            const MatrixDescriptors& operands, bool adds) {
  const auto place = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  gather({current->groups_committed,
          columns,
          {operands.a, operands.is_turned_a},
          {operands.b, operands.is_turned_b},
          false,
          type == Half::kBfloat16,
          adds,
          {},
          {}},
         sums, {}, place);
}

void warpgroup_multiply_add(Half type, unsigned columns, float* sums, const std::uint32_t* a,
                            std::uint64_t b, bool is_turned_b, bool adds) {
  const auto place = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  gather({current->groups_committed,
          columns,
          {},
          {b, is_turned_b},
          true,
          type == Half::kBfloat16,
          adds,
          {},
          {}},
         sums, {a[0], a[1], a[2], a[3]}, place);
}

void warpgroup_commit() { ++current->groups_committed; }

void warpgroup_wait(unsigned groups_left) {
  Warpgroup& group = warpgroup_of(*current);
  const std::uint64_t committed = current->groups_committed;
  const std::uint64_t complete = committed - std::min<std::uint64_t>(groups_left, committed);
  while (!group.products.empty() && group.products.front().group < complete) {
    execute(group.products.front());
    group.products.pop_front();
  }
  current->groups_complete = std::max(current->groups_complete, complete);
  current->clock.learn({group.agent, static_cast<std::uint32_t>(current->groups_complete)});
}

void touch_sums(std::uintptr_t address, std::size_t bytes, std::uintptr_t place) {
  for (const Sums& sums : current->sums) {
    if (address + bytes <= sums.begin || address >= sums.begin + sums.bytes) {
      continue;
    }
    if (sums.last_group >= current->groups_complete) {
      fail(FaultKind::kInFlight,
           message("the sums of a wgmma.mma_async that was not waited for\n  at ",
                   place_name(place)));
    }
    current->has_register_fence = false;
  }
}

}  // namespace gt::emulator
