// Memory for a call's working values that stays for the next call of the same thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace gt {

class Scratch {
 public:
  // At least `bytes` bytes, 64-byte aligned, with any contents; valid until the next call of this.
  void* bytes(std::size_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      size_ = bytes + bytes / 4;
      memory_.reset(static_cast<std::byte*>(::operator new(size_, std::align_val_t{kAlignment})));
    }
    return memory_.get();
  }

  template <class T>
  T* numbers(std::int64_t count) {
    return static_cast<T*>(bytes(static_cast<std::size_t>(count) * sizeof(T)));
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  struct Release {
    void operator()(std::byte* memory) const {
      ::operator delete(memory, std::align_val_t{kAlignment});
    }
  };
  std::unique_ptr<std::byte, Release> memory_;
  std::size_t size_ = 0;
};

}  // namespace gt
