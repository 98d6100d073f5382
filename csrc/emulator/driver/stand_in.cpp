// A libcuda.so.1 for tests: the entry points that cuda/host/driver.h loads. A launch runs the
// kernel of that name in the emulator before it returns. Tests call the functions stand_in_*: they
// register memory that kernels may touch, make calls fail, and report launches.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "core/message.h"
#include "cuda/host/driver.h"
#include "emulator/driver/launches.h"
#include "emulator/driver/shared_memory.h"
#include "emulator/machine/tensor_map.h"

using gt::cuda::LaunchConfig;
using gt::emulator::Play;

namespace {

enum Code : int {
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidContext = 201,
  kNotFound = 500,
  kLaunchFailed = 719,
};

struct Named {
  const char* name;
  const char* text;
};
const std::map<int, Named> kErrors = {
    {kInvalidValue, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {kOutOfMemory, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {100, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {kInvalidContext, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {209,
     {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"}},
    {218, {"CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"}},
    {kNotFound, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {kLaunchFailed, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
};

struct State {
  std::map<std::string, int> failing;
  std::map<std::uintptr_t, int> devices;  // device of each allocation, by its first byte
  std::map<const void*, std::string> functions;
  std::string launched;
  std::map<std::string, unsigned> shared;  // dynamic, of each kernel's last launch
  std::string shared_text;
  std::string fault;
  std::uintptr_t current = 0;  // 1 + the current device; 0: none
  int loads = 0;
  int opened = 0;  // open allocations of other processes
  std::uint64_t steps_max = gt::emulator::Launch{}.steps_max;
  std::uint64_t steps = 0;  // of the last launch without a fault
  int capability = 80;
};
State& state() {
  static State only;
  return only;
}

int failure(const char* name) {
  const auto found = state().failing.find(name);
  return found == state().failing.end() ? 0 : found->second;
}

// Seed of the scheduler, read from the environment at each launch. Throws Fault.
std::uint64_t seed() {
  const char* text = std::getenv("GT_EMULATOR_SEED");
  std::uint64_t value = 0;
  if (text == nullptr) {
    return value;
  }
  const char* end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, value);
  if (error != std::errc{} || rest != end) {
    throw gt::emulator::Fault(
        gt::emulator::FaultKind::kMisuse,
        gt::message("GT_EMULATOR_SEED=", text, ": expected a number from 0 to 2^64 - 1"));
  }
  return value;
}

// Records the last launch as JSON.
void remember(const std::string& name, const LaunchConfig& config, const std::string& packed) {
  const auto triple = [](const unsigned (&extent)[3]) {
    return "[" + std::to_string(extent[0]) + ", " + std::to_string(extent[1]) + ", " +
           std::to_string(extent[2]) + "]";
  };
  std::string attributes;
  for (unsigned i = 0; i < config.attribute_count; ++i) {
    attributes += (i == 0 ? "" : ", ") + std::to_string(config.attributes[i].id);
  }
  state().shared[name] = config.shared_bytes;
  state().launched =
      "{\"kernel\": \"" + name + "\", \"grid\": " + triple(config.grid) +
      ", \"block\": " + triple(config.block) +
      ", \"shared\": " + std::to_string(config.shared_bytes) +
      ", \"stream\": " + std::to_string(reinterpret_cast<std::uintptr_t>(config.queue)) +
      ", \"device\": " + std::to_string(state().current - 1) + ", \"attributes\": [" + attributes +
      "], \"arguments\": \"" + packed + "\"}";
}

}  // namespace

extern "C" {

void stand_in_add(const char* name, void* data, std::size_t bytes, int device, bool is_written);
void stand_in_remove(void* data);

int cuInit(unsigned) { return failure("cuInit"); }

int cuGetErrorName(int code, const char** name) {
  const auto found = kErrors.find(code);
  *name = found == kErrors.end() ? nullptr : found->second.name;
  return found == kErrors.end() ? kInvalidValue : 0;
}

int cuGetErrorString(int code, const char** text) {
  if (code == kLaunchFailed && !state().fault.empty()) {
    *text = state().fault.c_str();
    return 0;
  }
  const auto found = kErrors.find(code);
  *text = found == kErrors.end() ? nullptr : found->second.text;
  return found == kErrors.end() ? kInvalidValue : 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return failure("cuDeviceGet");
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == gt::cuda::kCapabilityMajor   ? state().capability / 10
           : attribute == gt::cuda::kCapabilityMinor ? state().capability % 10
                                                     : 4;  // multiprocessors
  return failure("cuDeviceGetAttribute");
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(std::uintptr_t{1} + static_cast<unsigned>(device));
  return failure("cuDevicePrimaryCtxRetain");
}

int cuCtxPushCurrent_v2(void* context) {
  state().current = reinterpret_cast<std::uintptr_t>(context);
  return failure("cuCtxPushCurrent_v2");
}

int cuCtxPopCurrent_v2(void** context) {
  *context = reinterpret_cast<void*>(state().current);
  state().current = 0;
  return failure("cuCtxPopCurrent_v2");
}

int cuPointerGetAttribute(void* value, int, std::uint64_t address) {
  auto& devices = state().devices;
  if (gt::emulator::memory().find(address) == nullptr) {
    return kInvalidValue;
  }
  *static_cast<int*>(value) = std::prev(devices.upper_bound(address))->second;
  return failure("cuPointerGetAttribute");
}

int cuModuleLoadDataEx(void** module, const void* image, unsigned options, int* names,
                       void** values) {
  const int code = state().current == 0 ? kInvalidContext : failure("cuModuleLoadDataEx");
  for (unsigned i = 0; code == 218 && i < options; ++i) {
    if (names[i] == gt::cuda::kErrorLog) {
      std::strcpy(static_cast<char*>(values[i]), "ptxas: line 1 is no PTX");
    }
  }
  ++state().loads;
  *module = const_cast<void*>(image);
  return code;
}

int cuModuleGetFunction(void** function, void*, const char* name) {
  const auto found = gt::emulator::kernels_by_name().find(name);
  if (found == gt::emulator::kernels_by_name().end()) {
    return kNotFound;
  }
  *function = const_cast<Play*>(&found->second);
  state().functions[*function] = name;
  return failure("cuModuleGetFunction");
}

int cuFuncSetAttribute(void*, int, int) { return failure("cuFuncSetAttribute"); }

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, std::size_t) {
  *blocks = 2;
  return failure("cuOccupancyMaxActiveBlocksPerMultiprocessor");
}

int cuLaunchKernelEx(const LaunchConfig* config, void* function, void** arguments, void**) {
  if (state().current == 0) {
    return kInvalidContext;
  }
  if (const int code = failure("cuLaunchKernelEx")) {
    return code;
  }
  gt::emulator::Launch wanted;
  wanted.grid = {config->grid[0], config->grid[1], config->grid[2]};
  wanted.block = {config->block[0], config->block[1], config->block[2]};
  wanted.shared_bytes = config->shared_bytes;
  wanted.steps_max = state().steps_max;
  for (unsigned i = 0; i < config->attribute_count; ++i) {
    const auto& attribute = config->attributes[i];
    wanted.is_cooperative |=
        attribute.id == gt::cuda::kCooperative && attribute.value.cooperative != 0;
    if (config->attributes[i].id == gt::cuda::kClusterDimension) {
      const unsigned (&cluster)[3] = config->attributes[i].value.cluster;
      wanted.cluster = {cluster[0], cluster[1], cluster[2]};
    }
  }
  std::string packed;
  int code = 0;
  try {
    wanted.seed = seed();
    state().steps = (*static_cast<Play*>(function))(wanted, arguments, packed).steps;
  } catch (const gt::emulator::Fault& fault) {
    state().fault = fault.what();
    code = kLaunchFailed;
  }
  remember(state().functions.at(function), *config, packed);
  return code;
}

int cuMemcpyHtoDAsync_v2(std::uint64_t target, const void* source, std::size_t bytes, void*) {
  void* to = reinterpret_cast<void*>(target);
  std::memcpy(to, source, bytes);
  gt::emulator::memory().set_initialized(to, true);
  return failure("cuMemcpyHtoDAsync_v2");
}

int cuMemAlloc_v2(std::uint64_t* address, std::size_t bytes) {
  void* data = gt::emulator::allocate_shared(bytes);
  if (data == nullptr) {
    return kOutOfMemory;
  }
  *address = reinterpret_cast<std::uintptr_t>(data);
  stand_in_add("allocated", data, bytes, static_cast<int>(state().current) - 1, false);
  return failure("cuMemAlloc_v2");
}

int cuMemFree_v2(std::uint64_t address) {
  void* data = reinterpret_cast<void*>(address);
  stand_in_remove(data);
  gt::emulator::release_shared(data);
  return failure("cuMemFree_v2");
}

int cuMemsetD32_v2(std::uint64_t address, unsigned value, std::size_t count) {
  void* data = reinterpret_cast<void*>(address);
  std::fill_n(static_cast<unsigned*>(data), count, value);
  gt::emulator::memory().set_initialized(data, true);
  return failure("cuMemsetD32_v2");
}

int cuCtxSynchronize() { return failure("cuCtxSynchronize"); }

int cuIpcGetMemHandle(gt::cuda::IpcHandle* handle, std::uint64_t address) {
  *handle = gt::emulator::handle_of(reinterpret_cast<void*>(address));
  return failure("cuIpcGetMemHandle");
}

int cuIpcOpenMemHandle_v2(std::uint64_t* address, gt::cuda::IpcHandle handle, unsigned) {
  const gt::emulator::Opened opened = gt::emulator::open_shared(handle);
  if (opened.data == nullptr) {
    return kInvalidValue;
  }
  *address = reinterpret_cast<std::uintptr_t>(opened.data);
  const int device = static_cast<int>(state().current) - 1;
  stand_in_add("opened", opened.data, opened.bytes, device, true);
  ++state().opened;
  return failure("cuIpcOpenMemHandle_v2");
}

int cuIpcCloseMemHandle(std::uint64_t address) {
  void* data = reinterpret_cast<void*>(address);
  stand_in_remove(data);
  gt::emulator::close_shared(data);
  --state().opened;
  return failure("cuIpcCloseMemHandle");
}

// Limits the steps of a launch, which may poll for other processes.
void stand_in_steps_max(std::uint64_t steps) { state().steps_max = steps; }

int stand_in_opened() { return state().opened; }

int cuTensorMapEncodeTiled(void* map, int type, std::uint32_t dims, void* address,
                           const std::uint64_t* sizes, const std::uint64_t* strides,
                           const std::uint32_t* box, const std::uint32_t* element_strides,
                           int interleave, int swizzle, int, int fill) {
  constexpr std::uint32_t kSwizzleBytes[] = {0, 32, 64, 128};
  if (dims > gt::emulator::kTensorDimsMax || swizzle < 0 || swizzle > 3 || interleave != 0 ||
      fill != 0 || (type != gt::cuda::kMapFloat16 && type != gt::cuda::kMapBfloat16)) {
    return kInvalidValue;
  }
  gt::emulator::TensorFacts facts;
  facts.address = reinterpret_cast<std::uintptr_t>(address);
  facts.dims = dims;
  facts.element_bytes = 2;
  facts.swizzle_bytes = kSwizzleBytes[swizzle];
  facts.strides[0] = 2;
  for (std::uint32_t dim = 0; dim < dims; ++dim) {
    facts.sizes[dim] = sizes[dim];
    facts.box[dim] = box[dim];
    if (dim > 0) {
      facts.strides[dim] = strides[dim - 1];
    }
    if (element_strides[dim] != 1) {
      return kInvalidValue;
    }
  }
  if (!gt::emulator::refusal(facts).empty()) {
    return kInvalidValue;
  }
  const gt::TensorMap made = gt::emulator::encode(facts);
  std::memcpy(map, &made, sizeof(made));
  return failure("cuTensorMapEncodeTiled");
}

void stand_in_add(const char* name, void* data, std::size_t bytes, int device, bool is_written) {
  gt::emulator::memory().add(name, data, bytes, is_written);
  state().devices[reinterpret_cast<std::uintptr_t>(data)] = device;
}

void stand_in_remove(void* data) {
  gt::emulator::memory().remove(data);
  state().devices.erase(reinterpret_cast<std::uintptr_t>(data));
}

// Makes the call return this code from now on; 0 lets it work again.
void stand_in_fail(const char* call, int code) { state().failing[call] = code; }

// Sets the capability that devices report from now on: 80 for sm_80.
void stand_in_capability(int capability) { state().capability = capability; }

const char* stand_in_launched() { return state().launched.c_str(); }

// Returns the dynamic shared memory in bytes of each kernel launched so far, as JSON.
const char* stand_in_shared() {
  std::string& text = state().shared_text;
  text = "{";
  for (const auto& [name, bytes] : state().shared) {
    text += (text.size() == 1 ? "\"" : ", \"") + name + "\": " + std::to_string(bytes);
  }
  text += "}";
  return text.c_str();
}

// Returns the scheduler's steps in the last launch without a fault: equal for equal seeds.
std::uint64_t stand_in_steps() { return state().steps; }

int stand_in_loads() { return state().loads; }
}
