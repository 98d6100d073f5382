// Source positions of the program's instructions.
#pragma once

#include <cstdint>
#include <string>

namespace gt::emulator {

// Text such as "file.cu:41", by addr2line where that is installed; else the address.
std::string place_name(std::uintptr_t address);

// True for an address in the program's own image: code, constants, static variables.
bool is_in_program(std::uintptr_t address);

}  // namespace gt::emulator
