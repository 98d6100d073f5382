#include "emulator/machine/place.h"

#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <sstream>

// The linker defines both symbols, for a program and for a shared library; hidden visibility
// selects those of this image.
extern "C" __attribute__((visibility("hidden"))) char __ehdr_start;
extern "C" __attribute__((visibility("hidden"))) char _end;

namespace gt::emulator {

bool is_in_program(std::uintptr_t address) {
  return address >= reinterpret_cast<std::uintptr_t>(&__ehdr_start) &&
         address < reinterpret_cast<std::uintptr_t>(&_end);
}

std::string place_name(std::uintptr_t address) {
  std::ostringstream text;
  Dl_info image{};
  if (address == 0 || dladdr(reinterpret_cast<void*>(address), &image) == 0) {
    text << "0x" << std::hex << address;
    return text.str();
  }
  // One byte back, because the address is the call's return address.
  const auto offset = address - reinterpret_cast<std::uintptr_t>(image.dli_fbase) - 1;
  text << "addr2line -e '" << image.dli_fname << "' 0x" << std::hex << offset << " 2>/dev/null";
  std::string line;
  if (FILE* pipe = popen(text.str().c_str(), "r")) {
    std::array<char, 512> part{};
    while (std::fgets(part.data(), static_cast<int>(part.size()), pipe) != nullptr) {
      line += part.data();
    }
    pclose(pipe);
  }
  line = line.substr(0, line.find_first_of("\n("));
  const std::size_t folder = line.rfind("/csrc/");
  if (line.empty() || line[0] == '?') {
    std::ostringstream plain;
    plain << "0x" << std::hex << offset;
    return plain.str();
  }
  return folder == std::string::npos ? line : line.substr(folder + 1);
}

}  // namespace gt::emulator
