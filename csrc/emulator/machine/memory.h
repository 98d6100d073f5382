// State of every byte that a kernel may touch: whether and by whom it was written, and by whom it
// was read. Threads appear as numbers and clocks only; barriers and the scheduler are unknown here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/machine/clock.h"
#include "emulator/machine/fault.h"

namespace gt::emulator {

// Scope of an operation, as PTX names it: .cta, .gpu, .sys. kPlain: not atomic.
enum class Scope : std::uint8_t { kPlain, kBlock, kDevice, kSystem };

enum class Access : std::uint8_t { kRead, kWrite };

struct Touch {
  std::uintptr_t address;
  std::size_t bytes;
  Access access;
  Scope scope;
  std::uintptr_t place;  // the instruction's address in the program, for the report
};

// The agent of a touch: a thread by its index in the grid, or an asynchronous operation by its
// number; with its time, its block and cluster, and the events it knows.
struct Toucher {
  Epoch now;
  std::uint32_t block;
  std::uint32_t cluster;
  const Clock& clock;
  bool is_async = false;
};

struct PastTouch {
  Epoch epoch;
  std::uint32_t block = 0;
  Scope scope = Scope::kPlain;
  std::uintptr_t place = 0;
  bool is_async = false;
};

struct Cell {
  PastTouch write;
  PastTouch read;  // the last read; reads not ordered before it are in Region::readers
  bool initialized = false;
  bool has_readers = false;
  bool in_flight = false;
};

constexpr std::uint32_t kNoBlock = UINT32_MAX;

// Block and cluster that own a region of shared memory.
struct Owner {
  std::uint32_t block = kNoBlock;
  std::uint32_t cluster = kNoBlock;
};

struct Region {
  std::string name;
  std::uintptr_t begin;
  std::size_t bytes;
  Owner owner;
  bool is_gone = false;  // the block has ended, others of its cluster have not
  std::vector<Cell> cells;
  std::unordered_map<std::size_t, std::vector<PastTouch>> readers;

  bool is_shared() const { return owner.block != kNoBlock; }
  bool contains(std::uintptr_t address) const { return address - begin < bytes; }
};

class Memory {
 public:
  void add(const std::string& name, void* data, std::size_t bytes, bool initialized,
           Owner owner = {});
  void remove(const void* data);
  // Marks the memory of a block that has ended.
  void retire(const void* data);
  void set_initialized(const void* data, bool initialized);
  // Drops recorded touches: everything before a launch is ordered before it.
  void forget_touches();

  // Returns the region that contains the address, or nullptr.
  Region* find(std::uintptr_t address);
  // Checks a touch against earlier ones and records it. Throws Fault.
  const Region& touch(const Touch& touch, const Toucher& toucher);
  // Marks bytes that an asynchronous copy will write, or clears the mark once it has.
  void set_in_flight(std::uintptr_t address, std::size_t bytes, bool in_flight);
  // Text such as "16 bytes of 'x' + 64", or the nearest region.
  std::string describe(std::uintptr_t address, std::size_t bytes);

 private:
  Region& region_of(const Touch& touch, const Toucher& toucher);
  void read_cell(Region& region, std::size_t offset, const Touch& touch, const Toucher& toucher);
  void write_cell(Region& region, std::size_t offset, const Touch& touch, const Toucher& toucher);
  void check_order(const PastTouch& past, Access past_access, const Touch& touch,
                   const Toucher& toucher);

  std::map<std::uintptr_t, Region> regions_;
  Region* last_ = nullptr;
};

Memory& memory();

}  // namespace gt::emulator
