#include "cuda/host/driver.h"

#include <dlfcn.h>

#include "core/message.h"

namespace gt::cuda {

template <class F>
void Driver::find(const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(handle_, name));
  if (function == nullptr) {
    throw CudaError(message(library_, " has no ", name, ": the driver is older than CUDA 12"));
  }
}

// The library stays open: the driver cannot be closed and opened again in one process.
Driver::Driver(const std::string& library)
    : library_(library), handle_(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) {
    throw CudaError(message("no CUDA driver: ", dlerror()));
  }
  Result (*start)(unsigned flags);
  find("cuInit", start);
  find("cuGetErrorName", get_error_name_);
  find("cuGetErrorString", get_error_text_);
  find("cuDeviceGet", get_device);
  find("cuDeviceGetAttribute", get_device_attribute);
  find("cuDevicePrimaryCtxRetain", retain_context);
  find("cuCtxPushCurrent_v2", push_context);
  find("cuCtxPopCurrent_v2", pop_context);
  find("cuPointerGetAttribute", get_pointer_attribute);
  find("cuModuleLoadDataEx", load_module);
  find("cuModuleGetFunction", get_function);
  find("cuFuncSetAttribute", set_function_attribute);
  find("cuOccupancyMaxActiveBlocksPerMultiprocessor", get_resident_blocks);
  find("cuLaunchKernelEx", launch);
  find("cuMemcpyHtoDAsync_v2", copy_to_device);
  find("cuMemAlloc_v2", allocate);
  find("cuMemFree_v2", release);
  find("cuMemsetD32_v2", fill_words);
  find("cuCtxSynchronize", synchronize);
  find("cuIpcGetMemHandle", share);
  find("cuIpcOpenMemHandle_v2", open_shared);
  find("cuIpcCloseMemHandle", close_shared);
  find("cuTensorMapEncodeTiled", encode_tensor_map);
  check(start(0), "starting CUDA's driver");
}

void Driver::check(Result result, const std::string& what) const {
  if (result == 0) {
    return;
  }
  const char* name = nullptr;
  const char* text = nullptr;
  get_error_name_(result, &name);
  get_error_text_(result, &text);
  throw CudaError(message(what, ": ", name != nullptr ? name : "an error without a name", " (",
                          result, "): ", text != nullptr ? text : "no text"));
}

}  // namespace gt::cuda
