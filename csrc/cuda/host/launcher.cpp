#include "cuda/host/launcher.h"

#include <cstring>
#include <optional>

#include "core/message.h"

namespace gt::cuda {
namespace {

constexpr unsigned kSharedBytesPlain = 48 * 1024;  // more needs an attribute of the function
constexpr std::size_t kLogBytes = 4096;

std::uint64_t count(const unsigned (&extent)[3]) {
  return std::uint64_t{extent[0]} * extent[1] * extent[2];
}

// Makes a device's primary context, which torch uses too, current on this thread for a scope.
class Current {
 public:
  Current(const Driver& driver, Context context) : driver_(driver) {
    driver_.check(driver_.push_context(context), "making the device current");
  }
  ~Current() {
    Context popped = nullptr;
    driver_.pop_context(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Driver& driver_;
};

QueueHandle handle_of(const Queue& queue) { return reinterpret_cast<QueueHandle>(queue.stream); }

}  // namespace

Launcher::Launcher(const std::string& library, Images images)
    : driver_(library), images_(std::move(images)) {}

int Launcher::device_of(const char* op, std::initializer_list<std::uintptr_t> addresses) const {
  std::optional<int> device;
  for (const std::uintptr_t address : addresses) {
    if (address == 0) {
      continue;
    }
    int ordinal = -1;
    driver_.check(driver_.get_pointer_attribute(&ordinal, kDeviceOrdinal, address),
                  message(op, ": an operand is not memory of a CUDA device"));
    if (device && *device != ordinal) {
      throw std::invalid_argument(
          message(op, ": operands are on the CUDA devices ", *device, " and ", ordinal));
    }
    device = ordinal;
  }
  if (!device) {
    throw std::invalid_argument(message(op, ": no operand has memory"));
  }
  return *device;
}

Launcher::OnDevice& Launcher::on_device(int device) {
  const auto found = devices_.find(device);
  if (found != devices_.end()) {
    return found->second;
  }
  Device handle = 0;
  OnDevice made{};
  driver_.check(driver_.get_device(&handle, device), message("finding CUDA device ", device));
  driver_.check(driver_.retain_context(&made.context, handle),
                message("using CUDA device ", device));
  int major = 0;
  int minor = 0;
  const std::pair<int*, int> wanted[] = {{&major, kCapabilityMajor},
                                         {&minor, kCapabilityMinor},
                                         {&made.facts.processors, kMultiprocessors}};
  for (const auto& [value, attribute] : wanted) {
    driver_.check(driver_.get_device_attribute(value, attribute, handle),
                  message("asking for attribute ", attribute, " of CUDA device ", device));
  }
  made.facts.capability = 10 * major + minor;
  return devices_.emplace(device, std::move(made)).first->second;
}

Module Launcher::module_of(OnDevice& device, const char* source) {
  const auto found = device.modules.find(source);
  if (found != device.modules.end()) {
    return found->second;
  }
  const auto image = images_.find(source);
  if (image == images_.end()) {
    throw CudaError(message("this build has no CUDA image of ", source, ".cu"));
  }
  char log[kLogBytes] = {};
  int names[] = {kErrorLog, kErrorLogBytes};
  void* values[] = {log, reinterpret_cast<void*>(kLogBytes)};
  Module module = nullptr;
  const Result result = driver_.load_module(&module, image->second.data(), 2, names, values);
  log[kLogBytes - 1] = '\0';
  driver_.check(result, message("loading the kernels of ", source, ".cu",
                                log[0] != '\0' ? message(" (", log, ")") : std::string()));
  device.modules.emplace(source, module);
  return module;
}

Function Launcher::function_of(OnDevice& device, const char* source, const char* name) {
  const auto found = device.functions.find(name);
  if (found != device.functions.end()) {
    return found->second;
  }
  Function function = nullptr;
  driver_.check(driver_.get_function(&function, module_of(device, source), name),
                message("finding the kernel ", name, " in ", source, ".cu"));
  device.functions.emplace(name, function);
  return function;
}

// Refuses a cooperative launch with too many blocks, with the numbers, which the driver's error
// lacks.
void Launcher::check_resident(Function function, const char* name, const Grid& grid,
                              const OnDevice& device) const {
  int blocks = 0;
  driver_.check(driver_.get_resident_blocks(
                    &blocks, function, static_cast<int>(count(grid.threads)), grid.shared_bytes),
                message("asking for the resident blocks of ", name));
  const std::uint64_t resident =
      static_cast<std::uint64_t>(blocks) * static_cast<unsigned>(device.facts.processors);
  if (count(grid.blocks) > resident) {
    throw CudaError(message(name, ": ", count(grid.blocks), " blocks must be resident at once, ",
                            resident, " can be"));
  }
}

void Launcher::run(const char* source, const char* name, const Grid& grid, const Queue& queue,
                   void** arguments) {
  const std::lock_guard lock(mutex_);
  OnDevice& device = on_device(queue.device);
  const Current current(driver_, device.context);
  const Function function = function_of(device, source, name);
  if (grid.shared_bytes > kSharedBytesPlain) {
    driver_.check(driver_.set_function_attribute(function, kDynamicSharedBytesMax,
                                                 static_cast<int>(grid.shared_bytes)),
                  message("giving ", name, " ", grid.shared_bytes, " bytes of shared memory"));
  }
  LaunchAttribute attributes[2] = {};
  unsigned used = 0;
  if (grid.is_cooperative) {
    check_resident(function, name, grid, device);
    attributes[used].id = kCooperative;
    attributes[used++].value.cooperative = 1;
  }
  if (count(grid.cluster) > 1) {
    attributes[used].id = kClusterDimension;
    for (int dim = 0; dim < 3; ++dim) {
      attributes[used].value.cluster[dim] = grid.cluster[dim];
    }
    ++used;
  }
  const LaunchConfig config{{grid.blocks[0], grid.blocks[1], grid.blocks[2]},
                            {grid.threads[0], grid.threads[1], grid.threads[2]},
                            grid.shared_bytes,
                            handle_of(queue),
                            attributes,
                            used};
  driver_.check(driver_.launch(&config, function, arguments, nullptr), message("launching ", name));
}

DeviceFacts Launcher::facts(int device) {
  const std::lock_guard lock(mutex_);
  return on_device(device).facts;
}

TensorMap Launcher::map(int device, const MappedTensor& tensor) {
  const std::lock_guard lock(mutex_);
  const Current current(driver_, on_device(device).context);
  constexpr std::uint32_t kElementSteps[] = {1, 1, 1, 1};
  std::string sizes;
  std::string strides;
  for (std::uint32_t dim = tensor.dims; dim > 0; --dim) {
    sizes += message(sizes.empty() ? "" : ", ", tensor.sizes[dim - 1]);
    strides += dim == 1 ? "" : message(strides.empty() ? "" : ", ", tensor.strides[dim - 2]);
  }
  TensorMap made{};
  driver_.check(
      driver_.encode_tensor_map(&made, tensor.is_bfloat16 ? kMapBfloat16 : kMapFloat16, tensor.dims,
                                reinterpret_cast<void*>(tensor.address), tensor.sizes,
                                tensor.strides, tensor.box, kElementSteps, kMapInterleaveNone,
                                kMapSwizzle128, kMapPromotion256, kMapFillZeros),
      message("mapping a tensor of [", sizes, "] with strides of ", strides, " bytes"));
  return made;
}

void Launcher::copy_to_device(std::uintptr_t target, const void* source, std::size_t bytes,
                              const Queue& queue) {
  const std::lock_guard lock(mutex_);
  const Current current(driver_, on_device(queue.device).context);
  driver_.check(driver_.copy_to_device(target, source, bytes, handle_of(queue)),
                message("copying ", bytes, " bytes to the device"));
}

std::uintptr_t Launcher::allocate(int device, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const Current current(driver_, on_device(device).context);
  std::uint64_t address = 0;
  driver_.check(driver_.allocate(&address, bytes),
                message("allocating ", bytes, " bytes of CUDA device ", device));
  driver_.check(driver_.fill_words(address, 0, bytes / 4), "filling memory with zeros");
  driver_.check(driver_.synchronize(), "waiting for memory to be filled");
  return address;
}

void Launcher::release(int device, std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  const Current current(driver_, on_device(device).context);
  driver_.check(driver_.release(address), "releasing memory");
}

std::string Launcher::share(int device, std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  const Current current(driver_, on_device(device).context);
  IpcHandle handle{};
  driver_.check(driver_.share(&handle, address), "sharing memory with other processes");
  return {handle.bytes, sizeof handle.bytes};
}

std::uintptr_t Launcher::open_shared(int device, const std::string& bytes) {
  IpcHandle handle{};
  if (bytes.size() != sizeof handle.bytes) {
    throw std::invalid_argument(message("a handle of shared memory has ", sizeof handle.bytes,
                                        " bytes, not ", bytes.size()));
  }
  std::memcpy(handle.bytes, bytes.data(), bytes.size());
  const std::lock_guard lock(mutex_);
  const Current current(driver_, on_device(device).context);
  std::uint64_t address = 0;
  driver_.check(driver_.open_shared(&address, handle, kPeerAccess),
                "opening the memory of another process");
  return address;
}

void Launcher::close_shared(int device, std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  const Current current(driver_, on_device(device).context);
  driver_.check(driver_.close_shared(address), "closing the memory of another process");
}

}  // namespace gt::cuda
