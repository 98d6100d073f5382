// Launches kernels of an image: loads a source's image once a device, finds each kernel once, packs
// arguments by the types of the kernel's declaration.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "cuda/host/driver.h"
#include "cuda/tensor_map.h"

namespace gt::cuda {

using Address = std::uintptr_t;

// Fat binaries by the name of their source file: "random" for random.cu.
using Images = std::map<std::string, std::string>;

// Images that the module was built with; none without nvcc (cuda/host/images.cmake).
const Images& embedded_images();

template <class Signature>
struct Kernel {
  const char* source;
  const char* name;
};
#define GT_KERNEL(source, name) \
  ::gt::cuda::Kernel<decltype(name)> { source, #name }

struct Grid {
  unsigned blocks[3] = {1, 1, 1};
  unsigned threads[3] = {1, 1, 1};
  unsigned shared_bytes = 0;        // dynamic shared memory
  unsigned cluster[3] = {1, 1, 1};  // blocks; sm_90 and later
  bool is_cooperative = false;      // all blocks are resident at once; else the launch is refused
};

// Stream of a launch, as torch gives it (`torch.cuda.current_stream().cuda_stream`).
struct Queue {
  int device;
  std::uintptr_t stream;
};

struct DeviceFacts {
  int capability;  // 90 for sm_90
  int processors;
};

// A tensor of 16-bit elements and the box that a kernel copies at a time, innermost dim first; the
// box is stored in shared memory with a swizzle of 128 bytes.
struct MappedTensor {
  Address address;
  bool is_bfloat16;
  std::uint32_t dims;  // up to 4
  std::uint64_t sizes[4];
  std::uint64_t strides[3];  // bytes, for dims from 1 on
  std::uint32_t box[4];
};

class Launcher {
 public:
  // Throws CudaError where the library cannot be used.
  Launcher(const std::string& library, Images images);

  // Device that all nonzero addresses belong to. Throws CudaError where one is not memory of a CUDA
  // device, std::invalid_argument where they are on different devices.
  int device_of(const char* op, std::initializer_list<std::uintptr_t> addresses) const;

  DeviceFacts facts(int device);

  // Throws CudaError with the sizes where the driver refuses the tensor.
  TensorMap map(int device, const MappedTensor& tensor);

  // Queues a launch and does not wait. Throws CudaError.
  template <class... Parameters, class... Arguments>
  void launch(const Kernel<void(Parameters...)>& kernel, const Grid& grid, const Queue& queue,
              const Arguments&... arguments) {
    static_assert(sizeof...(Parameters) == sizeof...(Arguments));
    std::tuple<Parameters...> packed{arguments...};
    std::apply(
        [&](auto&... each) {
          void* pointers[] = {static_cast<void*>(&each)...};
          run(kernel.source, kernel.name, grid, queue, pointers);
        },
        packed);
  }

  // Queues a copy of host memory, which may be freed when this returns.
  void copy_to_device(std::uintptr_t target, const void* source, std::size_t bytes,
                      const Queue& queue);

  // Allocates zeroed device memory in multiples of 4 bytes, as an allocation of its own: a handle
  // of share() names the beginning of an allocation.
  std::uintptr_t allocate(int device, std::size_t bytes);
  void release(int device, std::uintptr_t address);
  // CUDA IPC: a handle of 64 bytes, for other processes on this host. A process cannot open its own
  // handle.
  std::string share(int device, std::uintptr_t address);
  std::uintptr_t open_shared(int device, const std::string& handle);
  void close_shared(int device, std::uintptr_t address);

 private:
  struct OnDevice {
    Context context;
    DeviceFacts facts;
    std::map<std::string, Module> modules;
    std::map<std::string, Function> functions;
  };

  void run(const char* source, const char* name, const Grid& grid, const Queue& queue,
           void** arguments);
  OnDevice& on_device(int device);
  Function function_of(OnDevice& device, const char* source, const char* name);
  Module module_of(OnDevice& device, const char* source);
  void check_resident(Function function, const char* name, const Grid& grid,
                      const OnDevice& device) const;

  Driver driver_;
  Images images_;
  std::mutex mutex_;
  std::map<int, OnDevice> devices_;
};

}  // namespace gt::cuda
