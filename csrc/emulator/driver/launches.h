// Table of kernels by name, which unpacks their arguments as the driver does.
#pragma once

#include <map>
#include <string>

#include "emulator/machine/launch.h"

namespace gt::emulator {

// Runs the kernel in the emulator. Writes the bytes of each argument to `packed`, in hexadecimal
// and separated by spaces. Throws Fault.
using Play = Statistics (*)(const Launch& launch, void** arguments, std::string& packed);

const std::map<std::string, Play>& kernels_by_name();

}  // namespace gt::emulator
