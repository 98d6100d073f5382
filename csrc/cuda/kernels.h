// Every kernel of csrc/cuda, by the name under which the driver finds it.
#pragma once

#include <gt_device.h>

#include "algo/box_runs.h"
#include "algo/philox.h"
#include "algo/random_values.h"

extern "C" {

// ---- random.cu: out[i] by the index of element i in the whole tensor; any grid ----
__global__ void gt_uniform_f32(float* out, std::int64_t elements, gt::BoxRuns box,
                               gt::Stream stream, gt::UniformRange<float> range);
__global__ void gt_uniform_bf16(std::uint16_t* out, std::int64_t elements, gt::BoxRuns box,
                                gt::Stream stream, gt::UniformRange<float> range);
__global__ void gt_normal_f32(float* out, std::int64_t elements, gt::BoxRuns box, gt::Stream stream,
                              gt::NormalShape<float> shape);
__global__ void gt_normal_bf16(std::uint16_t* out, std::int64_t elements, gt::BoxRuns box,
                               gt::Stream stream, gt::NormalShape<float> shape);
__global__ void gt_integers_i64(std::int64_t* out, std::int64_t elements, gt::BoxRuns box,
                                gt::Stream stream, gt::IntegerRange range);
// threshold: how many of the 2^32 words drop an element.
__global__ void gt_dropout_mask(std::uint8_t* keep, std::int64_t elements, gt::BoxRuns box,
                                gt::Stream stream, std::uint64_t threshold);
__global__ void gt_dropout_f32(const float* x, float* out, std::int64_t elements, gt::BoxRuns box,
                               gt::Stream stream, std::uint64_t threshold, float scale);
}
