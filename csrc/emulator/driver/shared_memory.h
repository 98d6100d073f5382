// Memory that processes share by a handle, in place of CUDA IPC: anonymous files.
#pragma once

#include <cstddef>

#include "cuda/host/driver.h"

namespace gt::emulator {

// Returns zeroed memory that begins a page; nullptr on failure.
void* allocate_shared(std::size_t bytes);
void release_shared(void* data);
gt::cuda::IpcHandle handle_of(void* data);

struct Opened {
  void* data;  // nullptr: the process that owns the handle is gone
  std::size_t bytes;
};
Opened open_shared(const gt::cuda::IpcHandle& handle);
void close_shared(void* data);

}  // namespace gt::emulator
