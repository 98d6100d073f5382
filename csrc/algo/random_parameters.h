// Parameters of distributions, checked and prepared once for the CPU's kernels and CUDA's.
// Each throws std::invalid_argument, with the values.
#pragma once

#include <cstdint>

#include "algo/random_values.h"
#include "core/element.h"

namespace gt {

// [low, high), or low where both are equal, in the element type of the function's name.
void check_order(double low, double high);
UniformRange<double> range_f64(double low, double high);
UniformRange<float> range_f32(double low, double high);
UniformRange<float> range_bf16(double low, double high);
UniformRange<float> range_f16(double low, double high);

// Requires values that are finite in float64 where that is the element type, else in float32.
NormalShape<double> checked_normal(Element element, double mean, double std);

IntegerRange checked_integers(Element element, std::int64_t low, std::int64_t high);

// Number of the 2^32 words w below p * 2^32, so that w * 2^-32 < p for exactly those.
std::uint64_t checked_threshold(const char* op, double p);

}  // namespace gt
