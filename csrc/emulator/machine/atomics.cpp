// Atomic words with scopes and orders. PTX ISA 8 (memory consistency model), 9.7.13.5 (fence).
// Values go to memory at once, in the order of the schedule; clocks record which threads may rely
// on them.
#include <unordered_map>

#include "emulator/machine/instructions.h"
#include "emulator/machine/machine.h"
#include "emulator/machine/sync_state.h"

namespace gt::emulator {
namespace {

struct Published {
  ByScope clock;
  std::uint32_t block = 0;  // block of the last store
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
  const bool is_own = found->second.block == current->block->number;
  if (!is_own && scope == Scope::kBlock) {
    return;
  }
  const Clock& clock = is_own ? found->second.clock.own : found->second.clock.far;
  if (order == Order::kAcquireRelease) {
    current->clock.join(clock);
  } else {
    (is_own ? current->unfenced.own : current->unfenced.far).join(clock);
  }
}

void publish(const void* address, Scope scope, Order order, bool keeps_earlier) {
  Published& store = published()[reinterpret_cast<std::uintptr_t>(address)];
  if (!keeps_earlier) {
    store.clock = {};
  } else if (store.block != current->block->number) {
    store.clock.own = store.clock.far;
  }
  const bool is_release = order == Order::kAcquireRelease;
  store.clock.own.join(is_release ? current->clock : current->at_fence.own);
  if (scope != Scope::kBlock) {
    store.clock.far.join(is_release ? current->clock : current->at_fence.far);
  }
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

// Orders the accesses around two fences where the scope of each includes the other's thread.
void fence(Scope scope) {
  const bool is_far = scope != Scope::kBlock;
  current->clock.join(current->unfenced.own);
  if (is_far) {
    current->clock.join(current->unfenced.far);
  }
  current->at_fence.own = current->clock;
  if (is_far) {
    current->at_fence.far = current->clock;
  }
  current->clock.tick(current->number);
}

std::uint64_t nanoseconds() {
  if (current->time_read == machine->steps()) {
    machine->yield();  // a loop that only reads the time must let others run
  }
  current->time_read = machine->steps();
  return machine->steps() * kStepNanoseconds;
}

void forget_published() { published().clear(); }

}  // namespace gt::emulator
