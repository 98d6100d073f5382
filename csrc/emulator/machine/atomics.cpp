// Atomic words with scopes and orders. PTX ISA 8 (memory consistency model), 9.7.13.5 (fence).
// Values go to memory at once, in the order of the schedule; who may rely on it is the clocks'.
#include <unordered_map>

#include "emulator/machine/instructions.h"
#include "emulator/machine/machine.h"
#include "emulator/machine/sync_state.h"

namespace gt::emulator {
namespace {

struct Published {
  Clock clock;
  Scope scope = Scope::kPlain;
  std::uint32_t block = 0;
};

std::unordered_map<std::uintptr_t, Published>& published() {
  static std::unordered_map<std::uintptr_t, Published> all;
  return all;
}

constexpr std::uint64_t kStepNanoseconds = 50;

void touch_word(const void* address, Access access, Scope scope, const void* place) {
  checked_touch({reinterpret_cast<std::uintptr_t>(address), 4, access, scope,
                 reinterpret_cast<std::uintptr_t>(place)});
}

void see(const void* address, Scope scope, Order order) {
  const auto found = published().find(reinterpret_cast<std::uintptr_t>(address));
  if (found == published().end()) {
    return;
  }
  const Published& store = found->second;
  const bool is_narrow = scope == Scope::kBlock || store.scope == Scope::kBlock;
  if (is_narrow && store.block != current->block->number) {
    return;
  }
  if (order == Order::kAcquireRelease) {
    current->clock.join(store.clock);
  } else {
    current->unfenced.join(store.clock);
  }
}

void publish(const void* address, Scope scope, Order order, bool keeps_earlier) {
  Published& store = published()[reinterpret_cast<std::uintptr_t>(address)];
  if (!keeps_earlier) {
    store.clock = {};
  }
  store.clock.join(order == Order::kAcquireRelease ? current->clock : current->at_fence);
  store.scope = scope;
  store.block = current->block->number;
  current->clock.tick(current->number);
}

template <class T>
T add(T* address, T value, Scope scope, Order order, const void* place) {
  machine->maybe_yield();
  touch_word(address, Access::kRead, scope, place);
  touch_word(address, Access::kWrite, scope, place);
  see(address, scope, order);
  const T before = *address;
  *address = before + value;
  publish(address, scope, order, true);
  return before;
}

}  // namespace

std::uint32_t atomic_load(const std::uint32_t* address, Scope scope, Order order) {
  machine->yield();
  touch_word(address, Access::kRead, scope, __builtin_return_address(0));
  see(address, scope, order);
  return *address;
}

void atomic_store(std::uint32_t* address, std::uint32_t value, Scope scope, Order order) {
  machine->maybe_yield();
  touch_word(address, Access::kWrite, scope, __builtin_return_address(0));
  publish(address, scope, order, false);
  *address = value;
}

std::uint32_t atomic_add(std::uint32_t* address, std::uint32_t value, Scope scope, Order order) {
  return add(address, value, scope, order, __builtin_return_address(0));
}

float atomic_add(float* address, float value, Scope scope, Order order) {
  return add(address, value, scope, order, __builtin_return_address(0));
}

void fence() {
  current->clock.join(current->unfenced);
  current->at_fence = current->clock;
  current->clock.tick(current->number);
}

std::uint64_t nanoseconds() { return machine->steps() * kStepNanoseconds; }

void forget_published() { published().clear(); }

}  // namespace gt::emulator
