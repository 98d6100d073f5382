// Kernels by name, with their arguments unpacked as the driver unpacks them.
#pragma once

#include <map>
#include <string>

#include "emulator/machine/launch.h"

namespace gt::emulator {

// Runs the kernel under the machine. Into `packed` go the bytes of each argument, in hexadecimal
// and with spaces between them. Throws Fault.
using Play = Statistics (*)(const Launch& launch, void** arguments, std::string& packed);

const std::map<std::string, Play>& kernels_by_name();

}  // namespace gt::emulator
