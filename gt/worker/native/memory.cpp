// Memory of large values on the CPU, in the place of torch's own allocator.
//
// The C library cuts its heap for them: a block that is aligned does not fit again into the hole
// that one of its size has left, and a small result in such a hole keeps the next large one out of
// it, so that the heap grows with each. Here every large block is a mapping of its own, in huge
// pages where the kernel has any. The pages of what is freed are kept for what is allocated next,
// whatever its size: they are moved into its mapping, which takes microseconds where new ones would
// have to be filled with zeros. What is kept is bounded, is the system's to take where memory is
// short, and goes back when the worker is idle.
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
// Smaller blocks are the C library's: it finds and cuts those faster than a mapping is made.
constexpr size_t kLeast = size_t{1} << 20;
// From here on two huge pages and more fit; crates/transport/src/memory.rs has the same.
constexpr size_t kHugeLeast = size_t{4} << 20;
// Larger blocks do not wait.
constexpr size_t kKeptBlockMost = size_t{256} << 20;
// Smaller ones are rounded up to one of eight sizes in each doubling.
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
  // A kernel without huge pages goes on with small ones.
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

  // Gives what waits back to the system.
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
      // The process may map no more, or the system has no more.
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

  // A new block, with the pages of kept ones as far as they reach. Huge pages are moved by entries
  // of the table, so both sides begin at one.
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

  // False where the pages stay where they are, and there may be none at the target.
  static bool move(void* from, size_t bytes, void* to) {
    return mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED;
  }

  // False for a block that is not one of ours.
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
    // From now until somebody writes there the system may take the pages, should it need some.
    if (bytes >= kHugeLeast) madvise(address, bytes, MADV_FREE);
    shrink(kept_bytes_most_ - bytes);
    kept_.push_back({address, bytes});
    kept_bytes_ += bytes;
    return true;
  }

  // The oldest go until no more than so many bytes wait.
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
  // Guards what follows: values are made and freed by several threads.
  std::mutex mutex_;
  std::unordered_map<void*, size_t> live_;
  // In the order in which they were freed; at most kept_bytes_most_ / kLeast, a few hundred.
  std::list<Block> kept_;
  size_t kept_bytes_ = 0;
};

// For the life of the process: values may be freed while it ends.
BlockAllocator*& block_allocator() {
  static BlockAllocator* allocator = nullptr;
  return allocator;
}

void BlockAllocator::free_any(void* address) {
  BlockAllocator& all = *block_allocator();
  // Ours begin a page; of the small ones few do.
  const bool may_be_large = reinterpret_cast<uintptr_t>(address) % kPage == 0;
  if (!may_be_large || !all.give_back(address)) all.free_small_(address);
}

}  // namespace

extern "C" {

// From now on large values on the CPU are allocated here; of what is freed so many bytes are kept.
void gt_memory_install(uint64_t kept_bytes_most) {
  if (block_allocator() != nullptr) return;
  block_allocator() = new BlockAllocator(kept_bytes_most);
  // Above torch's own, and below whatever a program of the user's puts there.
  c10::SetCPUAllocator(block_allocator(), 1);
}

void gt_memory_release() {
  if (block_allocator() != nullptr) block_allocator()->release();
}

uint64_t gt_memory_kept() {
  return block_allocator() == nullptr ? 0 : block_allocator()->kept_bytes();
}
}
