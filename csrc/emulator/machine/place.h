// Where in the source an instruction of the program is.
#pragma once

#include <cstdint>
#include <string>

namespace gt::emulator {

// "file.cu:41", through addr2line where that is installed; else the address.
std::string place_name(std::uintptr_t address);

// Whether the address is in the program's own image: code, constants, static variables.
bool is_in_program(std::uintptr_t address);

}  // namespace gt::emulator
