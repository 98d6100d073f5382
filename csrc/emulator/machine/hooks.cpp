// Hooks that the compiler calls before each memory access of a kernel: kernels are compiled with
// -fsanitize=thread and linked with this file in place of the sanitizer's runtime. Nothing here
// calls into instrumented code.
#include "emulator/machine/machine.h"
#include "emulator/machine/place.h"

namespace gt::emulator {
namespace {

constexpr std::size_t kStackBytes = 128 * 1024;

void access(const void* pointer, std::size_t bytes, Access kind, const void* place) {
  if (current == nullptr) {
    return;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto at = reinterpret_cast<std::uintptr_t>(place);
  if (address - reinterpret_cast<std::uintptr_t>(current->stack) < kStackBytes) {
    touch_sums(address, bytes, at);
    return;  // a local variable
  }
  if (kind == Access::kRead && is_in_program(address)) {
    return;  // a constant
  }
  machine->maybe_yield();
  const Region& region = checked_touch({address, bytes, kind, Scope::kPlain, at});
  ++machine->statistics.accesses;
  if (region.is_shared()) {
    current->block->banks[current->rank / kWarpThreads].add(current->lane(), at, address, bytes);
  }
}

}  // namespace
}  // namespace gt::emulator

using gt::emulator::Access;
using gt::emulator::access;

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

#define GT_HOOKS(bytes)                                                  \
  void __tsan_read##bytes(void* address) {                               \
    access(address, bytes, Access::kRead, __builtin_return_address(0));  \
  }                                                                      \
  void __tsan_write##bytes(void* address) {                              \
    access(address, bytes, Access::kWrite, __builtin_return_address(0)); \
  }
#define GT_UNALIGNED_HOOKS(bytes)                                        \
  void __tsan_unaligned_read##bytes(void* address) {                     \
    access(address, bytes, Access::kRead, __builtin_return_address(0));  \
  }                                                                      \
  void __tsan_unaligned_write##bytes(void* address) {                    \
    access(address, bytes, Access::kWrite, __builtin_return_address(0)); \
  }
GT_HOOKS(1)
GT_HOOKS(2)
GT_HOOKS(4)
GT_HOOKS(8)
GT_HOOKS(16)
GT_UNALIGNED_HOOKS(2)
GT_UNALIGNED_HOOKS(4)
GT_UNALIGNED_HOOKS(8)
GT_UNALIGNED_HOOKS(16)
#undef GT_HOOKS
#undef GT_UNALIGNED_HOOKS

void __tsan_read_range(void* address, std::size_t bytes) {
  access(address, bytes, Access::kRead, __builtin_return_address(0));
}
void __tsan_write_range(void* address, std::size_t bytes) {
  access(address, bytes, Access::kWrite, __builtin_return_address(0));
}
void __tsan_vptr_update(void**, void*) {}

}  // extern "C"
