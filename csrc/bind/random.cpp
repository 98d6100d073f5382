// Converts and checks Python's arguments for the random kernels. No computation here.
#include "bind/random.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/calls.h"
#include "core/cpu_path.h"
#include "core/parallel.h"
#include "cpu/random_fill.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

using Array = nb::ndarray<>;

// numpy has no bfloat16: its uint16 arrays stand for the bits.
std::optional<Element> known_element(nb::dlpack::dtype dtype) {
  struct Row {
    nb::dlpack::dtype_code code;
    std::uint8_t bits;
    Element element;
  };
  constexpr Row kRows[] = {
      {nb::dlpack::dtype_code::Bool, 8, Element::kBool},
      {nb::dlpack::dtype_code::Int, 32, Element::kInt32},
      {nb::dlpack::dtype_code::Int, 64, Element::kInt64},
      {nb::dlpack::dtype_code::UInt, 32, Element::kUint32},
      {nb::dlpack::dtype_code::UInt, 16, Element::kBfloat16},
      {nb::dlpack::dtype_code::Bfloat, 16, Element::kBfloat16},
      {nb::dlpack::dtype_code::Float, 16, Element::kFloat16},
      {nb::dlpack::dtype_code::Float, 32, Element::kFloat32},
      {nb::dlpack::dtype_code::Float, 64, Element::kFloat64},
  };
  for (const Row& row : kRows) {
    if (dtype.code == static_cast<std::uint8_t>(row.code) && dtype.bits == row.bits &&
        dtype.lanes == 1) {
      return row.element;
    }
  }
  return std::nullopt;
}

Shape shape_of(const Array& array) {
  Shape shape;
  for (std::size_t dim = 0; dim < array.ndim(); ++dim) {
    shape.push_back(static_cast<std::int64_t>(array.shape(dim)));
  }
  return shape;
}

bool is_contiguous(const Array& array) {
  std::int64_t expected = 1;
  for (std::size_t dim = array.ndim(); dim-- > 0;) {
    if (array.shape(dim) != 1 && array.stride(dim) != expected) {
      return array.size() == 0;
    }
    expected *= static_cast<std::int64_t>(array.shape(dim));
  }
  return true;
}

Shape strides_of(const Array& array) {
  Shape strides;
  for (std::size_t dim = 0; dim < array.ndim(); ++dim) {
    strides.push_back(array.stride(dim));
  }
  return strides;
}

Element checked_element(const char* op, const Array& out) {
  if (out.device_type() != nb::device::cpu::value) {
    throw DtypeError(message(op, ": out is on DLPack device type ", out.device_type(),
                             ", not on the CPU (", nb::device::cpu::value, ")"));
  }
  const nb::dlpack::dtype dtype = out.dtype();
  const std::optional<Element> element = known_element(dtype);
  if (!element) {
    throw DtypeError(message(op, ": out has the unknown dtype of DLPack code ", int{dtype.code},
                             ", ", int{dtype.bits}, " bits, ", dtype.lanes, " lanes"));
  }
  if (!is_contiguous(out)) {
    throw std::invalid_argument(message(op, ": out ", shape_of(out), " with strides ",
                                        strides_of(out), " is not C-contiguous"));
  }
  return *element;
}

RandomTarget checked_target(const char* op, const Array& out, Shape global_shape, Shape start,
                            int threads) {
  if (threads < 1 || threads > kThreadsMax) {
    throw std::invalid_argument(
        message(op, ": threads ", threads, " is not in [1, ", kThreadsMax, "]"));
  }
  const Element element = checked_element(op, out);
  return {out.data(), element, Box(op, shape_of(out), std::move(global_shape), std::move(start)),
          threads};
}

// The Python function around fill: out, seed, draw, the distribution's own values, global_shape,
// start, threads.
template <class... Values>
auto filler(const char* op, void (*fill)(const RandomTarget&, Stream, Values...)) {
  return [op, fill](const Array& out, std::uint64_t seed, std::uint64_t draw, Values... values,
                    Shape global_shape, Shape start, int threads) {
    count_call();
    const RandomTarget target =
        checked_target(op, out, std::move(global_shape), std::move(start), threads);
    const nb::gil_scoped_release release;
    fill(target, {seed, draw}, values...);
  };
}

void philox(const Array& out, std::uint64_t seed, std::uint64_t draw, std::uint64_t first_block) {
  count_call();
  const Element element = checked_element("philox", out);
  if (element != Element::kUint32 || out.size() % 4 != 0) {
    throw DtypeError(message("philox: out ", shape_of(out), " of dtype ", element_name(element),
                             " is not uint32 with a multiple of 4 elements"));
  }
  auto* words = static_cast<std::uint32_t*>(out.data());
  const std::size_t count = out.size();
  const nb::gil_scoped_release release;
  fill_words(words, count, {seed, draw}, first_block);
}

void bind_continuous(nb::module_& module) {
  module.def("uniform", filler("uniform", &fill_uniform), "out"_a.noconvert(), "seed"_a, "draw"_a,
             "low"_a, "high"_a, "global_shape"_a, "start"_a, "threads"_a = 1,
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
  module.def("normal", filler("normal", &fill_normal), "out"_a.noconvert(), "seed"_a, "draw"_a,
             "mean"_a, "std"_a, "global_shape"_a, "start"_a, "threads"_a = 1,
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
  module.def("integers", filler("integers", &fill_integers), "out"_a.noconvert(), "seed"_a,
             "draw"_a, "low"_a, "high"_a, "global_shape"_a, "start"_a, "threads"_a = 1,
             R"(Fills out with uniform integers in [low, high).

Args:
    out: As for uniform, of int64 or int32; both get the same integers.
    low: Least value.
    high: One above the largest value, more than low.

Raises:
    TypeError: out is not a writable CPU array of such a dtype.
    ValueError: Anything else does not fit.)");
  module.def("bernoulli", filler("bernoulli", &fill_bernoulli), "out"_a.noconvert(), "seed"_a,
             "draw"_a, "p"_a, "global_shape"_a, "start"_a, "threads"_a = 1,
             R"(Fills out with one (true) with probability p, else with zero (false).

Args:
    out: As for uniform, of bool, int64, int32 or a floating dtype; all get the same ones.
    p: Probability, 0 to 1; taken in steps of 2^-32, upwards.

Raises:
    TypeError: out is not a writable CPU array of such a dtype.
    ValueError: Anything else does not fit.)");
  module.def("dropout_mask", filler("dropout_mask", &fill_dropout_mask), "out"_a.noconvert(),
             "seed"_a, "draw"_a, "p"_a, "global_shape"_a, "start"_a, "threads"_a = 1,
             R"(Fills out with false with probability p, else with true: not bernoulli.

Args:
    out: As for uniform, of bool.
    p: Probability of false, as in bernoulli.

Raises:
    TypeError: out is not a writable CPU array of bool.
    ValueError: Anything else does not fit.)");
}

void bind_paths(nb::module_& module) {
  module.def("philox", &philox, "out"_a.noconvert(), "seed"_a, "draw"_a, "first_block"_a,
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
