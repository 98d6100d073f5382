// Asynchronous copies of single threads: PTX ISA 9.7.9.25.3 (cp.async). A copy runs as late as
// allowed, when its thread waits for it; until then its destination is in flight.
#include <cstring>

#include "emulator/machine/instructions.h"
#include "emulator/machine/machine.h"

namespace gt::emulator {
namespace {

void complete(const Copy& copy) {
  memory().set_in_flight(copy.to, copy.bytes, false);
  checked_touch({copy.to, copy.bytes, Access::kWrite, Scope::kPlain, copy.place});
  std::memset(reinterpret_cast<void*>(copy.to), 0, copy.bytes);
  if (copy.read_bytes > 0) {
    checked_touch({copy.from, copy.read_bytes, Access::kRead, Scope::kPlain, copy.place});
    std::memcpy(reinterpret_cast<void*>(copy.to), reinterpret_cast<void*>(copy.from),
                copy.read_bytes);
  }
}

}  // namespace

void copy_async(void* to, const void* from, std::size_t bytes, std::size_t read_bytes) {
  const Copy copy{reinterpret_cast<std::uintptr_t>(to), reinterpret_cast<std::uintptr_t>(from),
                  bytes, read_bytes, reinterpret_cast<std::uintptr_t>(__builtin_return_address(0))};
  if ((bytes != 4 && bytes != 8 && bytes != 16) || read_bytes > bytes) {
    fail(FaultKind::kMisuse, message("cp.async: ", bytes, " bytes of which ", read_bytes,
                                     " are read: 4, 8 or 16 bytes, and no more read than written"));
  }
  if (copy.to % bytes != 0 || copy.from % bytes != 0) {
    fail(FaultKind::kMisaligned, message("cp.async of ", bytes, " bytes"));
  }
  const Region& target = checked_touch({copy.to, bytes, Access::kWrite, Scope::kPlain, copy.place});
  if (!target.is_shared()) {
    fail(FaultKind::kMisuse, "cp.async: the destination is not in shared memory");
  }
  if (read_bytes > 0) {
    checked_touch({copy.from, read_bytes, Access::kRead, Scope::kPlain, copy.place});
  }
  memory().set_in_flight(copy.to, bytes, true);
  current->open_copies.push_back(copy);
}

void copy_commit() {
  current->copy_groups.push_back(std::move(current->open_copies));
  current->open_copies.clear();
}

void copy_wait(std::size_t groups_left) {
  while (current->copy_groups.size() > groups_left) {
    const std::vector<Copy> group = std::move(current->copy_groups.front());
    current->copy_groups.pop_front();
    for (const Copy& copy : group) {
      complete(copy);
    }
  }
}

}  // namespace gt::emulator
