// Converts and checks Python's arguments for the random kernels. No computation here.
#include "bind/random.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <stdexcept>
#include <utility>

#include "bind/tensor_argument.h"
#include "core/calls.h"
#include "core/cpu_path.h"
#include "core/parallel.h"
#include "core/processor.h"
#include "cpu/random_fill.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

void check_contiguous(const char* op, const TensorView& out) {
  if (!out.is_contiguous()) {
    throw std::invalid_argument(message(op, ": out ", out.shape_copy(), " with strides ",
                                        out.strides_copy(), " is not C-contiguous"));
  }
}

RandomTarget checked_target(const char* op, const TensorView& out, Shape global_shape, Shape start,
                            int threads) {
  if (threads < 1 || threads > kThreadsMax) {
    throw std::invalid_argument(
        message(op, ": threads ", threads, " is not in [1, ", kThreadsMax, "]"));
  }
  check_contiguous(op, out);
  return {out.data, out.element,
          Box(op, out.shape_copy(), std::move(global_shape), std::move(start)), threads};
}

// Makes the Python function of `fill`: out, seed, draw, the distribution's own values,
// global_shape, start, threads.
template <class... Values>
auto filler(const char* op, void (*fill)(const RandomTarget&, Stream, Values...)) {
  return [op, fill](nb::handle given, std::uint64_t seed, std::uint64_t draw, Values... values,
                    Shape global_shape, Shape start, int threads) {
    count_call();
    const OutputArgument out(op, "out", given);
    const RandomTarget target =
        checked_target(op, out.view(), std::move(global_shape), std::move(start), threads);
    const nb::gil_scoped_release release;
    fill(target, {seed, draw}, values...);
  };
}

void philox(nb::handle given, std::uint64_t seed, std::uint64_t draw, std::uint64_t first_block) {
  count_call();
  const OutputArgument argument("philox", "out", given);
  const TensorView& out = argument.view();
  check_contiguous("philox", out);
  const auto count = static_cast<std::size_t>(out.elements());
  if (out.element != Element::kUint32 || count % 4 != 0) {
    throw DtypeError(message("philox: out ", out.shape_copy(), " of dtype ",
                             element_name(out.element),
                             " is not uint32 with a multiple of 4 elements"));
  }
  auto* words = static_cast<std::uint32_t*>(out.data);
  const nb::gil_scoped_release release;
  fill_words(words, count, {seed, draw}, first_block);
}

void bind_continuous(nb::module_& module) {
  module.def("uniform", filler("uniform", &fill_uniform), "out"_a, "seed"_a, "draw"_a, "low"_a,
             "high"_a, "global_shape"_a, "start"_a, "threads"_a = 1,
             R"(Fills out with uniform values in [low, high); with low where both are equal.

Args:
    out: C-contiguous CPU array of float32, float64, float16 or bfloat16 (numpy: its bits as
        uint16); a box of a global tensor. Also below.
    seed: The generator's seed, 0 to 2^64 - 1. Also below.
    draw: Which random instruction of the generator, 0 to 2^64 - 1. Also below.
    low: Least value; low, high and high - low must be finite in out's dtype.
    high: Above the largest value.
    global_shape: The global tensor's shape, as long as out's. Also below.
    start: The box's first index in each dim of global_shape. Also below.
    threads: Threads to use at most, 1 to 256; changes no value. Also below.

Raises:
    TypeError: out is not a writable CPU array of such a dtype.
    ValueError: Anything else does not fit.)");
  module.def("normal", filler("normal", &fill_normal), "out"_a, "seed"_a, "draw"_a, "mean"_a,
             "std"_a, "global_shape"_a, "start"_a, "threads"_a = 1,
             R"(Fills out with normally distributed values.

Args:
    out: As for uniform.
    mean: Finite in float32 (in float64 for a float64 out).
    std: Standard deviation, likewise finite and not negative.

Raises:
    TypeError: out is not a writable CPU array of such a dtype.
    ValueError: Anything else does not fit.)");
}

void bind_discrete(nb::module_& module) {
  module.def("integers", filler("integers", &fill_integers), "out"_a, "seed"_a, "draw"_a, "low"_a,
             "high"_a, "global_shape"_a, "start"_a, "threads"_a = 1,
             R"(Fills out with uniform integers in [low, high).

Args:
    out: As for uniform, of int64 or int32; both get the same integers.
    low: Least value.
    high: One above the largest value, more than low.

Raises:
    TypeError: out is not a writable CPU array of such a dtype.
    ValueError: Anything else does not fit.)");
  module.def("bernoulli", filler("bernoulli", &fill_bernoulli), "out"_a, "seed"_a, "draw"_a, "p"_a,
             "global_shape"_a, "start"_a, "threads"_a = 1,
             R"(Fills out with one (true) with probability p, else with zero (false).

Args:
    out: As for uniform, of bool, int64, int32 or a floating dtype; all get the same ones.
    p: Probability, 0 to 1; taken in steps of 2^-32, upwards.

Raises:
    TypeError: out is not a writable CPU array of such a dtype.
    ValueError: Anything else does not fit.)");
  module.def("dropout_mask", filler("dropout_mask", &fill_dropout_mask), "out"_a, "seed"_a,
             "draw"_a, "p"_a, "global_shape"_a, "start"_a, "threads"_a = 1,
             R"(Fills out with false with probability p, else with true: not bernoulli.

Args:
    out: As for uniform, of bool.
    p: Probability of false, as in bernoulli.

Raises:
    TypeError: out is not a writable CPU array of bool.
    ValueError: Anything else does not fit.)");
}

void bind_paths(nb::module_& module) {
  module.def("philox", &philox, "out"_a, "seed"_a, "draw"_a, "first_block"_a,
             R"(Fills out with the words of consecutive Philox blocks, four each, for tests.

Args:
    out: C-contiguous CPU array of uint32, with a multiple of 4 elements.
    first_block: The first block's index, 0 to 2^64 - 1; it wraps around.

Raises:
    TypeError: out is no such array.)");
  module.def("paths", &cpu_path_names,
             "Names of the instruction sets that this machine can run, the narrowest first.");
  module.def("set_path", &choose_cpu_path, "name"_a,
             R"(Chooses the instruction set of all later calls; random
numbers are the same bits with each. For tests.

Args:
    name: One of paths(), or "auto" for the widest.

Raises:
    ValueError: The name is not among these.)");
  module.def(
      "set_processor", &choose_processor, "name"_a,
      R"(Chooses the processor's family by which later calls decide whether a kernel pays. For
tests.

Args:
    name: "other", "intel_avx512", or "auto" for this machine's.

Raises:
    ValueError: The name is not among these.)");
}

}  // namespace

void bind_random(nb::module_& module) {
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const DtypeError& error) {
      PyErr_SetString(PyExc_TypeError, error.what());
    }
  });
  bind_continuous(module);
  bind_discrete(module);
  bind_paths(module);
}

}  // namespace gt
