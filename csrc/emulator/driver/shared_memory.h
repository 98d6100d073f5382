// Memory that processes share by a handle, in place of CUDA IPC's: files without a name.
#pragma once

#include <cstddef>

#include "cuda/host/driver.h"

namespace gt::emulator {

// Zeros, at a multiple of a page. nullptr: there is none.
void* allocate_shared(std::size_t bytes);
void release_shared(void* data);
gt::cuda::IpcHandle handle_of(void* data);

struct Opened {
  void* data;  // nullptr: the handle's owner is gone
  std::size_t bytes;
};
Opened open_shared(const gt::cuda::IpcHandle& handle);
void close_shared(void* data);

}  // namespace gt::emulator
