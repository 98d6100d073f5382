#include "emulator/driver/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>

namespace gt::emulator {
namespace {

// Contents of a handle. The operating system closes the file when its process dies.
struct File {
  pid_t process;
  int descriptor;
  std::size_t bytes;
};
static_assert(sizeof(File) <= sizeof(gt::cuda::IpcHandle));

std::map<void*, File>& files() {
  static std::map<void*, File> all;
  return all;
}

void* mapped(int descriptor, std::size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return data == MAP_FAILED ? nullptr : data;
}

void unmap(void* data) {
  munmap(data, files().at(data).bytes);
  files().erase(data);
}

}  // namespace

void* allocate_shared(std::size_t bytes) {
  const int descriptor = memfd_create("gt-stand-in", MFD_CLOEXEC);
  if (descriptor < 0 || ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    return nullptr;
  }
  void* data = mapped(descriptor, bytes);
  if (data != nullptr) {
    files()[data] = {getpid(), descriptor, bytes};
  }
  return data;
}

void release_shared(void* data) {
  close(files().at(data).descriptor);
  unmap(data);
}

gt::cuda::IpcHandle handle_of(void* data) {
  gt::cuda::IpcHandle handle{};
  std::memcpy(handle.bytes, &files().at(data), sizeof(File));
  return handle;
}

Opened open_shared(const gt::cuda::IpcHandle& handle) {
  File file{};
  std::memcpy(&file, handle.bytes, sizeof file);
  const std::string path =
      "/proc/" + std::to_string(file.process) + "/fd/" + std::to_string(file.descriptor);
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) {
    return {nullptr, 0};
  }
  void* data = mapped(descriptor, file.bytes);
  close(descriptor);
  if (data != nullptr) {
    files()[data] = file;
  }
  return {data, file.bytes};
}

void close_shared(void* data) { unmap(data); }

}  // namespace gt::emulator
