// Allocator of large values on the CPU, in place of torch's own.
//
// The C library splits its heap for them: an aligned block does not fit into the hole that another
// of its size has left, and a small result in such a hole keeps the next large one out of it, so
// that the heap grows with each. Here every large block is a mapping of its own, in huge pages if
// the kernel has any. Pages of freed blocks are kept for later ones of any size: they are moved
// into the new mapping, which takes microseconds, while new pages would have to be filled with
// zeros. The kept memory is bounded, may be reclaimed by the system when memory is short, and is
// released when the worker is idle.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <list>
#include <mutex>
#include <unordered_map>

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
// Smaller blocks come from the C library, which finds them faster than a mapping is made.
constexpr size_t kLeast = size_t{1} << 20;
// Smallest block in huge pages: two of them fit. crates/transport/src/memory.rs has the same.
constexpr size_t kHugeLeast = size_t{4} << 20;
// Larger blocks are not kept when they are freed.
constexpr size_t kKeptBlockMost = size_t{256} << 20;
// Binary logarithm of the number of block sizes in each doubling, for blocks below kHugeLeast.
constexpr int kSizesLog = 3;

size_t rounded(size_t bytes) {
  const size_t step = bytes < kHugeLeast ? std::bit_floor(bytes) >> kSizesLog : kHugePage;
  return (bytes + step - 1) / step * step;
}

constexpr int kReadWrite = PROT_READ | PROT_WRITE;
constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;

void* map(size_t bytes) {
  const size_t margin = bytes < kHugeLeast ? 0 : kHugePage;
  void* mapped = mmap(nullptr, bytes + margin, kReadWrite, kAnonymous, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (margin == 0) return mapped;
  auto* start = static_cast<char*>(mapped);
  const size_t before = -reinterpret_cast<uintptr_t>(mapped) % kHugePage;
  if (before > 0) munmap(start, before);
  if (before < margin) munmap(start + before + bytes, margin - before);
  // A kernel without huge pages uses small ones.
  madvise(start + before, bytes, MADV_HUGEPAGE);
  return start + before;
}

struct Block {
  void* address;
  size_t bytes;
};

// True if the block consists of huge pages, as far as the kernel had any.
bool is_huge(const Block& block) {
  return (reinterpret_cast<uintptr_t>(block.address) | block.bytes) % kHugePage == 0;
}

class BlockAllocator final : public c10::Allocator {
 public:
  explicit BlockAllocator(size_t kept_bytes_most)
      : small_(c10::GetDefaultCPUAllocator()),
        free_small_(small_->raw_deleter()),
        kept_bytes_most_(kept_bytes_most) {}

  c10::DataPtr allocate(size_t bytes) override {
    void* address = bytes < kLeast ? nullptr : large(rounded(bytes));
    // On exhaustion torch's own allocator raises its error.
    if (address == nullptr) address = small_->raw_allocate(bytes);
    return {address, address, &free_any, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_any; }

  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

  // Gives the kept blocks back to the system.
  void release() {
    const std::lock_guard lock(mutex_);
    shrink(0);
  }

  size_t kept_bytes() {
    const std::lock_guard lock(mutex_);
    return kept_bytes_;
  }

 private:
  static void free_any(void* address);

  void* large(size_t bytes) {
    const std::lock_guard lock(mutex_);
    void* address = take(bytes);
    if (address == nullptr) address = make(bytes);
    if (address == nullptr) {
      // The process has reached its limit of mappings, or the system is out of memory.
      shrink(0);
      address = map(bytes);
    }
    if (address != nullptr) live_.emplace(address, bytes);
    return address;
  }

  // The kept block of this size that was freed last: it is the likeliest to be in a cache.
  void* take(size_t bytes) {
    for (auto block = kept_.rbegin(); block != kept_.rend(); ++block) {
      if (block->bytes != bytes) continue;
      void* address = block->address;
      kept_bytes_ -= bytes;
      kept_.erase(std::next(block).base());
      return address;
    }
    return nullptr;
  }

  // Makes a block, with the pages of kept ones as far as they reach. Huge pages are moved as
  // entries of the page table, so both sides begin at a huge page.
  void* make(size_t bytes) {
    auto* start = static_cast<char*>(map(bytes));
    if (start == nullptr || bytes < kHugeLeast) return start;
    size_t filled = 0;
    for (auto block = kept_.begin(); block != kept_.end() && filled < bytes;) {
      const size_t chunk = std::min(block->bytes, bytes - filled);
      if (!is_huge(*block)) {
        ++block;
        continue;
      }
      char* from = static_cast<char*>(block->address) + (block->bytes - chunk);
      if (!move(from, chunk, start + filled)) {
        munmap(start, bytes);
        return nullptr;
      }
      filled += chunk;
      kept_bytes_ -= chunk;
      block->bytes -= chunk;
      block = block->bytes == 0 ? kept_.erase(block) : std::next(block);
    }
    return start;
  }

  // Moves pages; false if they stay where they are, with possibly no pages at the target.
  static bool move(void* from, size_t bytes, void* to) {
    return mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED;
  }

  // Keeps a freed block; false for a block of another allocator.
  bool give_back(void* address) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(address);
    if (found == live_.end()) return false;
    const size_t bytes = found->second;
    live_.erase(found);
    if (bytes > std::min(kKeptBlockMost, kept_bytes_most_)) {
      munmap(address, bytes);
      return true;
    }
    // The system may reclaim the pages until they are written again.
    if (bytes >= kHugeLeast) madvise(address, bytes, MADV_FREE);
    shrink(kept_bytes_most_ - bytes);
    kept_.push_back({address, bytes});
    kept_bytes_ += bytes;
    return true;
  }

  // Releases the oldest blocks until at most `bytes` are kept.
  void shrink(size_t bytes) {
    while (kept_bytes_ > bytes) {
      const Block block = kept_.front();
      kept_.pop_front();
      kept_bytes_ -= block.bytes;
      munmap(block.address, block.bytes);
    }
  }

  c10::Allocator* small_;
  c10::DeleterFnPtr free_small_;
  const size_t kept_bytes_most_;
  // Guards the kept blocks: values are made and freed by several threads.
  std::mutex mutex_;
  std::unordered_map<void*, size_t> live_;
  // Blocks in the order in which they were freed; at most kept_bytes_most_ / kLeast, a few hundred.
  std::list<Block> kept_;
  size_t kept_bytes_ = 0;
};

// Allocated for the life of the process: values may be freed while it ends.
BlockAllocator*& block_allocator() {
  static BlockAllocator* allocator = nullptr;
  return allocator;
}

void BlockAllocator::free_any(void* address) {
  BlockAllocator& all = *block_allocator();
  // Our blocks begin a page; few small ones do.
  const bool may_be_large = reinterpret_cast<uintptr_t>(address) % kPage == 0;
  if (!may_be_large || !all.give_back(address)) all.free_small_(address);
}

}  // namespace

extern "C" {

// Installs the allocator for large values on the CPU; `kept_bytes_most` bounds the kept memory.
void gt_memory_install(uint64_t kept_bytes_most) {
  if (block_allocator() != nullptr) return;
  block_allocator() = new BlockAllocator(kept_bytes_most);
  // Priority above torch's own allocator, and below one that a user's program installs.
  c10::SetCPUAllocator(block_allocator(), 1);
}

void gt_memory_release() {
  if (block_allocator() != nullptr) block_allocator()->release();
}

uint64_t gt_memory_kept() {
  return block_allocator() == nullptr ? 0 : block_allocator()->kept_bytes();
}
}
