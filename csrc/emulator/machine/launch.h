// Launches of kernels in tests: buffers of device memory, and a launch that checks every access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "emulator/machine/fault.h"
#include "emulator/machine/memory.h"

namespace gt::emulator {

struct Dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
  unsigned count() const { return x * y * z; }
};

struct Launch {
  Dim3 grid;
  Dim3 block;
  Dim3 cluster;                  // blocks of a cluster; the grid is a multiple of it
  std::size_t shared_bytes = 0;  // dynamic shared memory
  unsigned registers = 0;        // per thread at its start; 0: as many as fit for one block
  bool is_cooperative = false;   // all blocks are resident at once
  unsigned resident_blocks = 3;  // at a time, unless is_cooperative
  std::uint64_t seed = 0;        // 0: threads run in order and switch only where they must
  std::uint64_t steps_max = 4'000'000;
};

struct Statistics {
  std::uint64_t steps = 0;
  std::uint64_t accesses = 0;
  std::uint64_t bank_conflicts = 0;                         // excess cycles of shared memory
  std::map<std::uintptr_t, std::uint64_t> conflict_places;  // bank_conflicts by instruction
};

// Runs the kernel to its end. Throws Fault.
Statistics launch(const Launch& launch, const std::function<void()>& kernel);

// Device memory. Values that neither the kernel nor the test has written count as uninitialized.
template <class T>
class Buffer {
 public:
  Buffer(const std::string& name, std::size_t count, std::size_t offset_elements = 0)
      : count_(count), storage_((count + offset_elements) * sizeof(T) + kAlignment) {
    std::memset(storage_.data(), kPoison, storage_.size());
    auto begin = reinterpret_cast<std::uintptr_t>(storage_.data());
    begin = (begin + kAlignment - 1) / kAlignment * kAlignment;
    data_ = reinterpret_cast<T*>(begin) + offset_elements;
    memory().add(name, data_, count * sizeof(T), false);
  }
  Buffer(const std::string& name, const std::vector<T>& values, std::size_t offset_elements = 0)
      : Buffer(name, values.size(), offset_elements) {
    std::memcpy(static_cast<void*>(data_), values.data(), values.size() * sizeof(T));
    memory().set_initialized(data_, true);
  }
  ~Buffer() { memory().remove(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() { return data_; }
  std::size_t size() const { return count_; }
  std::vector<T> values() const { return std::vector<T>(data_, data_ + count_); }

 private:
  static constexpr std::size_t kAlignment = 256;  // as in cudaMalloc
  static constexpr int kPoison = 0xA5;
  std::size_t count_;
  std::vector<unsigned char> storage_;
  T* data_ = nullptr;
};

}  // namespace gt::emulator
