// CUDA's driver by dlopen: the few functions that launching a kernel needs, under their names in
// https://docs.nvidia.com/cuda/cuda-driver-api. Nothing of CUDA is linked or included;
// cuda/host/layout_check.cpp compares the structures with NVIDIA's header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace gt::cuda {

// A failed call of the driver, or a library that is missing or lacks a function.
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using Result = int;         // CUresult
using Device = int;         // CUdevice
using Context = void*;      // CUcontext
using Module = void*;       // CUmodule
using Function = void*;     // CUfunction
using QueueHandle = void*;  // CUstream

enum LaunchAttributeId : std::uint32_t { kCooperative = 2, kClusterDimension = 4 };

// CUlaunchAttribute.
struct LaunchAttribute {
  LaunchAttributeId id;
  char padding[4];
  union {
    char bytes[64];
    int cooperative;
    unsigned cluster[3];
  } value;
};

// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  QueueHandle queue;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

// CUipcMemHandle.
struct IpcHandle {
  char bytes[64];
};

enum Number : int {
  kErrorLog = 5,               // CU_JIT_ERROR_LOG_BUFFER
  kErrorLogBytes = 6,          // CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
  kDynamicSharedBytesMax = 8,  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
  kDeviceOrdinal = 9,          // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
  kMultiprocessors = 16,       // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
  kPeerAccess = 1,             // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
  kCapabilityMajor = 75,       // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
  kCapabilityMinor = 76,       // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
};

// Arguments of cuTensorMapEncodeTiled: CU_TENSOR_MAP_...
enum TensorMapNumber : int {
  kMapFloat16 = 6,   // DATA_TYPE_FLOAT16
  kMapBfloat16 = 9,  // DATA_TYPE_BFLOAT16
  kMapInterleaveNone = 0,
  kMapSwizzle128 = 3,    // SWIZZLE_128B
  kMapPromotion256 = 3,  // L2_PROMOTION_L2_256B
  kMapFillZeros = 0,     // FLOAT_OOB_FILL_NONE
};

class Driver {
 public:
  // Opens the library and starts the driver. Throws CudaError.
  explicit Driver(const std::string& library);
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Throws CudaError with `what`, the driver's name of the error and its text, unless `result` is
  // 0.
  void check(Result result, const std::string& what) const;

  Result (*get_device)(Device* device, int ordinal);
  Result (*get_device_attribute)(int* value, int attribute, Device device);
  Result (*retain_context)(Context* context, Device device);
  Result (*push_context)(Context context);
  Result (*pop_context)(Context* context);
  Result (*get_pointer_attribute)(void* value, int attribute, std::uint64_t address);
  Result (*load_module)(Module* module, const void* image, unsigned options, int* names,
                        void** values);
  Result (*get_function)(Function* function, Module module, const char* name);
  Result (*set_function_attribute)(Function function, int attribute, int value);
  Result (*get_resident_blocks)(int* blocks, Function function, int block_threads,
                                std::size_t shared_bytes);
  Result (*launch)(const LaunchConfig* config, Function function, void** arguments, void** extra);
  Result (*copy_to_device)(std::uint64_t target, const void* source, std::size_t bytes,
                           QueueHandle queue);
  Result (*allocate)(std::uint64_t* address, std::size_t bytes);
  Result (*release)(std::uint64_t address);
  Result (*fill_words)(std::uint64_t address, unsigned value, std::size_t count);
  Result (*synchronize)();
  Result (*share)(IpcHandle* handle, std::uint64_t address);
  Result (*open_shared)(std::uint64_t* address, IpcHandle handle, unsigned flags);
  Result (*close_shared)(std::uint64_t address);
  Result (*encode_tensor_map)(void* map, int type, std::uint32_t dims, void* address,
                              const std::uint64_t* sizes, const std::uint64_t* strides,
                              const std::uint32_t* box, const std::uint32_t* element_strides,
                              int interleave, int swizzle, int promotion, int fill);

 private:
  template <class F>
  void find(const char* name, F& function);

  std::string library_;
  void* handle_;
  Result (*get_error_name_)(Result result, const char** name);
  Result (*get_error_text_)(Result result, const char** text);
};

}  // namespace gt::cuda
