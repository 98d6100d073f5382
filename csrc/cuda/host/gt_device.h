// Replaces cuda/ptx/gt_device.h where a plain C++ compiler reads the kernels' declarations, so that
// a launch packs its arguments by their types. No kernel is compiled with it.
#pragma once

#define __global__
#define __grid_constant__
#define __device__
#define __launch_bounds__(...)
