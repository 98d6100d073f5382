// Converts Python's arguments for the recurrent layers. No computation here.
#include "bind/recurrent.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <stdexcept>

#include "core/calls.h"
#include "core/message.h"
#include "cpu/recurrent/recurrent.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

// A tensor by its address: an array protocol costs microseconds for each one, and there are twelve.
// Zero: no tensor.
using Address = std::uintptr_t;

float* array(Address address) { return reinterpret_cast<float*>(address); }

Recurrence known_kind(const std::string& name) {
  constexpr const char* kNames[kRecurrences] = {"lstm", "gru", "tanh", "relu"};
  for (int kind = 0; kind < kRecurrences; ++kind) {
    if (name == kNames[kind]) {
      return static_cast<Recurrence>(kind);
    }
  }
  throw std::invalid_argument(message("'", name, "' is none of lstm, gru, tanh and relu"));
}

void forward(const std::string& kind, std::int64_t steps, std::int64_t rows, std::int64_t units,
             bool reverse, int threads, Address gates, Address hidden, Address cell, Address weight,
             Address bias, Address output, Address cells, Address activations) {
  count_call();
  const Recurrence known = known_kind(kind);
  const nb::gil_scoped_release release;
  recurrent_forward(known, {steps, rows, units, reverse},
                    {array(gates), array(hidden), array(cell), array(bias), nullptr, array(output),
                     array(cells), array(activations)},
                    array(weight), threads);
}

void backward(const std::string& kind, std::int64_t steps, std::int64_t rows, std::int64_t units,
              bool reverse, int threads, Address grad, Address grad_cells, Address hidden,
              Address cell, Address weight, Address output, Address cells, Address activations,
              Address grads, Address grads_state, Address grad_hidden, Address grad_cell) {
  count_call();
  const Recurrence known = known_kind(kind);
  const nb::gil_scoped_release release;
  recurrent_backward(known, {steps, rows, units, reverse},
                     {array(grad), array(grad_cells), array(hidden), array(cell), nullptr,
                      array(output), array(cells), array(activations), array(grads),
                      array(grads_state), array(grad_hidden), array(grad_cell)},
                     array(weight), threads);
}

}  // namespace

void bind_recurrent(nb::module_& module) {
  module.def("recurrent_forward", &forward, "kind"_a, "steps"_a, "rows"_a, "units"_a, "reverse"_a,
             "threads"_a, "gates"_a, "hidden"_a, "cell"_a, "weight"_a, "bias"_a, "output"_a,
             "cells"_a, "activations"_a,
             R"(A recurrent layer over a whole sequence, in one direction.

Args:
    kind: lstm, gru, tanh or relu.
    steps, rows, units: t, b and h below.
    reverse: From the last step to the first.
    threads: Threads to use at most, 1 to 256; changes no value.
    gates, hidden, cell, weight, bias: Addresses of contiguous float32 arrays on the CPU:
        [t, b, g * h], [b, h], [b, h] (lstm), [g * h, h] and [g * h] (gru; 0 for none), with g
        4, 3, 1 and 1.
    output, cells, activations: Likewise, written: [t, b, h], [t, b, h] (lstm), [t, b, 4 * h]
        (lstm: the gates; gru: reset, update, new, and new's part of the state). 0 elsewhere.

Raises:
    ValueError: A size is not positive, an array is missing, or anything else does not fit.)");
  module.def("recurrent_backward", &backward, "kind"_a, "steps"_a, "rows"_a, "units"_a, "reverse"_a,
             "threads"_a, "grad"_a, "grad_cells"_a, "hidden"_a, "cell"_a, "weight"_a, "output"_a,
             "cells"_a, "activations"_a, "grads"_a, "grads_state"_a, "grad_hidden"_a, "grad_cell"_a,
             R"(The gradients of recurrent_forward.

Args:
    kind to threads: As there.
    grad, grad_cells: Of output, and of cells (0 for none).
    hidden, cell, weight, output, cells, activations: As there.
    grads: Written: of the gates.
    grads_state: Written: of the state's product; but for gru it is grads.
    grad_hidden, grad_cell: Written: of the first states; the second for lstm.

Raises:
    ValueError: As there.)");
}

}  // namespace gt
