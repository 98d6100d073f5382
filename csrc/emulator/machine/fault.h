// Kinds of faults that the emulator reports, and their text. No checks here.
#pragma once

#include <stdexcept>
#include <string>

namespace gt::emulator {

enum class FaultKind {
  kDeadlock,     // every thread waits, or none advances within the limit of steps
  kRace,         // two accesses, one of them a write, without an order between them
  kOutOfBounds,  // an address in no buffer, in another block's shared memory or on another's stack
  kUninitialized,  // a read of bytes that were never written
  kInFlight,       // an access to bytes of an asynchronous copy before a wait for it
  kMisaligned,     // an address that is no multiple of the access's size
  kMisuse,         // an instruction whose operands the PTX documentation forbids
};

constexpr const char* fault_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kDeadlock:
      return "deadlock";
    case FaultKind::kRace:
      return "race";
    case FaultKind::kOutOfBounds:
      return "out of bounds";
    case FaultKind::kUninitialized:
      return "uninitialized read";
    case FaultKind::kInFlight:
      return "access to a copy in flight";
    case FaultKind::kMisaligned:
      return "misaligned access";
    case FaultKind::kMisuse:
      return "misuse";
  }
  __builtin_unreachable();
}

class Fault : public std::runtime_error {
 public:
  Fault(FaultKind kind, const std::string& report)
      : std::runtime_error(std::string(fault_name(kind)) + ": " + report), kind_(kind) {}

  FaultKind kind() const { return kind_; }

 private:
  FaultKind kind_;
};

}  // namespace gt::emulator
