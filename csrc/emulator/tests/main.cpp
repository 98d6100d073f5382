// Runs the tests whose names contain the argument, or all. Prints one line a test; exits with 1 if
// one failed.
#include <chrono>
#include <cstdio>
#include <cstring>

#include "emulator/tests/check.h"

namespace gt::testing {

std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

}  // namespace gt::testing

int main(int count, char** arguments) {
  const char* wanted = count > 1 ? arguments[1] : "";
  int failed = 0;
  int run = 0;
  for (const gt::testing::Test& test : gt::testing::tests()) {
    if (std::strstr(test.name, wanted) == nullptr) {
      continue;
    }
    ++run;
    const auto start = std::chrono::steady_clock::now();
    const char* result = "ok";
    std::string why;
    try {
      test.run();
    } catch (const std::exception& error) {
      result = "FAILED";
      why = std::string("\n") + error.what();
      ++failed;
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    std::printf("%-6s %6.2f s  %s%s\n", result, taken.count(), test.name, why.c_str());
  }
  std::printf("%d of %d tests failed\n", failed, run);
  return failed == 0 && run > 0 ? 0 : 1;
}
