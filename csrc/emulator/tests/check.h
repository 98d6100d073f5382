// A minimal test framework: TEST registers a function, check compares and reports the values.
#pragma once

#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/message.h"
#include "emulator/machine/launch.h"

namespace gt::testing {

struct Test {
  const char* name;
  void (*run)();
};

std::vector<Test>& tests();

struct Registration {
  Registration(const char* name, void (*run)()) { tests().push_back({name, run}); }
};

#define TEST(name)                                                         \
  static void name();                                                      \
  static const ::gt::testing::Registration registered_##name{#name, name}; \
  static void name()

template <class... Parts>
void check(bool is_right, const Parts&... parts) {
  if (!is_right) {
    throw std::runtime_error(message(parts...));
  }
}

template <class T>
void check_equal(const std::vector<T>& got, const std::vector<T>& expected, const char* what) {
  check(got.size() == expected.size(), what, ": ", got.size(), " values, not ", expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    check(got[i] == expected[i], what, "[", i, "]: ", +got[i], ", not ", +expected[i]);
  }
}

// Requires |got - expected| <= tolerance * max(1, |expected|).
inline void check_close(float got, double expected, double tolerance, const char* what,
                        std::size_t i) {
  const double error = std::abs(static_cast<double>(got) - expected);
  check(error <= tolerance * std::max(1.0, std::abs(expected)), what, "[", i, "]: ", got, ", not ",
        expected);
}

// Returns the fault that ends a launch. Fails where the launch ends without one.
inline emulator::Fault fault_of(const emulator::Launch& launch,
                                const std::function<void()>& kernel) {
  try {
    emulator::launch(launch, kernel);
  } catch (const emulator::Fault& fault) {
    return fault;
  }
  throw std::runtime_error("the launch ended without a fault");
}

inline void check_fault(const emulator::Fault& fault, emulator::FaultKind kind,
                        const std::string& text) {
  check(fault.kind() == kind && std::string(fault.what()).find(text) != std::string::npos,
        "expected ", emulator::fault_name(kind), " with '", text, "', got ", fault.what());
}

}  // namespace gt::testing
