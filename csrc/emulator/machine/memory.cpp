#include "emulator/machine/memory.h"

#include "core/message.h"
#include "emulator/machine/place.h"

namespace gt::emulator {
namespace {

bool is_atomic_between(const PastTouch& past, const Touch& touch, const Toucher& toucher) {
  if (past.scope == Scope::kPlain || touch.scope == Scope::kPlain) {
    return false;
  }
  const bool is_narrow = past.scope == Scope::kBlock || touch.scope == Scope::kBlock;
  return !is_narrow || past.block == toucher.block;
}

bool is_ordered(const PastTouch& past, Access past_access, const Touch& touch,
                const Toucher& toucher) {
  if (!toucher.is_async) {
    return past.epoch.thread == toucher.now.thread || toucher.clock.knows(past.epoch) ||
           is_atomic_between(past, touch, toucher);
  }
  // PTX ISA 8.6, proxies: a thread's write must pass a fence.proxy.async first.
  return past.is_async || past_access == Access::kRead ? toucher.clock.knows(past.epoch)
                                                       : toucher.clock.knows_fenced(past.epoch);
}

PastTouch remembered(const Touch& touch, const Toucher& toucher) {
  return {toucher.now, toucher.block, touch.scope, touch.place, toucher.is_async};
}

// Text such as "thread 3 of block 0", or the name of an asynchronous operation.
std::string actor(const Epoch& epoch, std::uint32_t block, bool is_async) {
  return is_async ? message("an asynchronous operation of block ", block)
                  : message("thread ", epoch.thread, " of block ", block);
}

const char* scope_name(Scope scope) {
  switch (scope) {
    case Scope::kPlain:
      return "";
    case Scope::kBlock:
      return " (atomic in the block)";
    case Scope::kDevice:
      return " (atomic on the device)";
    case Scope::kSystem:
      return " (atomic in the system)";
  }
  __builtin_unreachable();
}

const char* access_name(Access access) { return access == Access::kRead ? "reads" : "writes"; }
const char* past_name(Access access) { return access == Access::kRead ? "read" : "wrote"; }

}  // namespace

Memory& memory() {
  static Memory only;
  return only;
}

void Memory::add(const std::string& name, void* data, std::size_t bytes, bool initialized,
                 Owner owner) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  Cell fresh;
  fresh.initialized = initialized;
  regions_[begin] = Region{name, begin, bytes, owner, false, std::vector<Cell>(bytes, fresh), {}};
  last_ = nullptr;
}

void Memory::remove(const void* data) {
  regions_.erase(reinterpret_cast<std::uintptr_t>(data));
  last_ = nullptr;
}

void Memory::retire(const void* data) {
  regions_.at(reinterpret_cast<std::uintptr_t>(data)).is_gone = true;
}

void Memory::set_initialized(const void* data, bool initialized) {
  for (Cell& cell : regions_.at(reinterpret_cast<std::uintptr_t>(data)).cells) {
    cell.initialized = initialized;
  }
}

void Memory::forget_touches() {
  for (auto& [begin, region] : regions_) {
    region.readers.clear();
    for (Cell& cell : region.cells) {
      const bool initialized = cell.initialized;
      cell = {};
      cell.initialized = initialized;
    }
  }
}

Region* Memory::find(std::uintptr_t address) {
  if (last_ != nullptr && last_->contains(address)) {
    return last_;
  }
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) {
    return nullptr;
  }
  Region& region = std::prev(after)->second;
  if (!region.contains(address)) {
    return nullptr;
  }
  last_ = &region;
  return last_;
}

std::string Memory::describe(std::uintptr_t address, std::size_t bytes) {
  if (const Region* region = find(address)) {
    return message(bytes, " bytes at ", region->name, " + ", address - region->begin, " of ",
                   region->bytes);
  }
  auto after = regions_.upper_bound(address);
  if (after != regions_.begin()) {
    const Region& before = std::prev(after)->second;
    return message(bytes, " bytes, ", address - before.begin - before.bytes, " bytes behind ",
                   before.name, " (", before.bytes, " bytes)");
  }
  return message(bytes, " bytes in no buffer");
}

Region& Memory::region_of(const Touch& touch, const Toucher& toucher) {
  Region* region = find(touch.address);
  const auto who = [&] { return actor(toucher.now, toucher.block, toucher.is_async); };
  if (region == nullptr || touch.address + touch.bytes > region->begin + region->bytes) {
    throw Fault(FaultKind::kOutOfBounds,
                message(who(), " ", access_name(touch.access), " ",
                        describe(touch.address, touch.bytes), "\n  at ", place_name(touch.place)));
  }
  if (region->is_shared() && region->owner.cluster != toucher.cluster) {
    throw Fault(FaultKind::kOutOfBounds,
                message(who(), " touches ", region->name, "\n  at ", place_name(touch.place)));
  }
  if (region->is_gone) {
    throw Fault(FaultKind::kOutOfBounds,
                message(who(), " touches ", region->name, ", which has ended\n  at ",
                        place_name(touch.place)));
  }
  return *region;
}

const Region& Memory::touch(const Touch& touch, const Toucher& toucher) {
  Region& region = region_of(touch, toucher);
  if ((touch.bytes & (touch.bytes - 1)) == 0 && touch.address % touch.bytes != 0) {
    throw Fault(FaultKind::kMisaligned,
                message(describe(touch.address, touch.bytes), "\n  at ", place_name(touch.place)));
  }
  const std::size_t first = touch.address - region.begin;
  for (std::size_t offset = first; offset < first + touch.bytes; ++offset) {
    if (touch.access == Access::kRead) {
      read_cell(region, offset, touch, toucher);
    } else {
      write_cell(region, offset, touch, toucher);
    }
  }
  return region;
}

void Memory::read_cell(Region& region, std::size_t offset, const Touch& touch,
                       const Toucher& toucher) {
  Cell& cell = region.cells[offset];
  if (cell.in_flight) {
    throw Fault(FaultKind::kInFlight,
                message(actor(toucher.now, toucher.block, toucher.is_async), " reads ",
                        describe(touch.address, touch.bytes), "\n  at ", place_name(touch.place)));
  }
  if (!cell.initialized) {
    throw Fault(FaultKind::kUninitialized,
                message(actor(toucher.now, toucher.block, toucher.is_async), " reads ",
                        describe(touch.address, touch.bytes), "\n  at ", place_name(touch.place)));
  }
  check_order(cell.write, Access::kWrite, touch, toucher);
  const bool follows = cell.read.epoch.time == 0 || cell.read.epoch.thread == toucher.now.thread ||
                       toucher.clock.knows(cell.read.epoch);
  if (!follows) {
    std::vector<PastTouch>& readers = region.readers[offset];
    std::erase_if(readers, [&](const PastTouch& past) {
      return past.epoch.thread == cell.read.epoch.thread;
    });
    readers.push_back(cell.read);
    cell.has_readers = true;
  }
  cell.read = remembered(touch, toucher);
}

void Memory::write_cell(Region& region, std::size_t offset, const Touch& touch,
                        const Toucher& toucher) {
  Cell& cell = region.cells[offset];
  if (cell.in_flight) {
    throw Fault(FaultKind::kInFlight,
                message(actor(toucher.now, toucher.block, toucher.is_async), " writes ",
                        describe(touch.address, touch.bytes), "\n  at ", place_name(touch.place)));
  }
  check_order(cell.write, Access::kWrite, touch, toucher);
  check_order(cell.read, Access::kRead, touch, toucher);
  if (cell.has_readers) {
    for (const PastTouch& reader : region.readers[offset]) {
      check_order(reader, Access::kRead, touch, toucher);
    }
    region.readers.erase(offset);
    cell.has_readers = false;
  }
  cell.write = remembered(touch, toucher);
  cell.initialized = true;
}

void Memory::check_order(const PastTouch& past, Access past_access, const Touch& touch,
                         const Toucher& toucher) {
  if (is_ordered(past, past_access, touch, toucher)) {
    return;
  }
  const bool lacks_fence = toucher.is_async && !past.is_async && toucher.clock.knows(past.epoch);
  throw Fault(
      FaultKind::kRace,
      message(describe(touch.address, touch.bytes), "\n  ",
              actor(toucher.now, toucher.block, toucher.is_async), " ", access_name(touch.access),
              scope_name(touch.scope), " at ", place_name(touch.place), "\n  ",
              actor(past.epoch, past.block, past.is_async), " ", past_name(past_access),
              scope_name(past.scope), " at ", place_name(past.place),
              lacks_fence ? "\n  and no fence.proxy.async stands between the two"
                          : "\n  and nothing orders the two"));
}

void Memory::set_in_flight(std::uintptr_t address, std::size_t bytes, bool in_flight) {
  Region& region = *find(address);
  const std::size_t first = address - region.begin;
  for (std::size_t offset = first; offset < first + bytes; ++offset) {
    region.cells[offset].in_flight = in_flight;
  }
}

}  // namespace gt::emulator
