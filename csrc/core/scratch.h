// Memory for a call's working values that stays for the next call of the same thread.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace gt {

class Scratch {
 public:
  // At least `bytes` bytes, 64-byte aligned, with any contents; valid until the next call of this.
  void* bytes(std::size_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      size_ = 0;
      const std::size_t wanted = bytes + bytes / 4;
      const std::size_t unit = wanted < kHugePage ? kAlignment : kHugePage;
      const std::size_t whole = (wanted + unit - 1) / unit * unit;
      memory_.reset(static_cast<std::byte*>(std::aligned_alloc(unit, whole)));
      if (memory_ == nullptr) {
        throw std::bad_alloc();
      }
      if (unit == kHugePage) {
        madvise(memory_.get(), whole, MADV_HUGEPAGE);  // a hint: without huge pages others serve
      }
      size_ = whole;
    }
    return memory_.get();
  }

  template <class T>
  T* numbers(std::int64_t count) {
    return static_cast<T*>(bytes(static_cast<std::size_t>(count) * sizeof(T)));
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  struct Release {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Release> memory_;
  std::size_t size_ = 0;
};

}  // namespace gt
