// Converts and checks Python's arguments for RMS norm. No computation here.
#include "bind/norms.h"

#include <optional>
#include <stdexcept>

#include "bind/array_argument.h"
#include "bind/contiguous_argument.h"
#include "core/calls.h"
#include "cpu/norms.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

using Read = Contiguous<float, TensorArgument>;
using Written = Contiguous<float, OutputArgument>;

// Of a weight that may be None.
class Weight {
 public:
  Weight(const char* op, nb::handle object, std::size_t columns) {
    if (object.is_none()) {
      return;
    }
    given_.emplace(op, "weight", object);
    check_count(op, "weight", given_->size(), columns);
  }

  const float* data() const { return given_ ? given_->data() : nullptr; }

 private:
  std::optional<Read> given_;
};

void forward(nb::handle x, nb::handle weight, double eps, nb::handle out, nb::handle rstd,
             int threads) {
  count_call();
  constexpr const char* kOp = "rms_norm";
  const Read from(kOp, "x", x);
  const Written to(kOp, "out", out), of_rows(kOp, "rstd", rstd);
  const std::size_t rows = of_rows.size();
  const std::size_t columns = rows == 0 ? 0 : from.size() / rows;
  check_count(kOp, "x", from.size(), rows * columns);
  check_count(kOp, "out", to.size(), from.size());
  const Weight scale(kOp, weight, columns);
  const int at_most = checked_threads(kOp, threads);
  const nb::gil_scoped_release release;
  rms_norm({from.data(), scale.data(), eps, to.data(), of_rows.data(), rows, columns}, at_most);
}

void backward(nb::handle grad, nb::handle x, nb::handle rstd, nb::handle weight, nb::handle x_grad,
              nb::handle weight_grad, int threads) {
  count_call();
  constexpr const char* kOp = "rms_norm_backward";
  const Read slopes(kOp, "grad", grad), from(kOp, "x", x), of_rows(kOp, "rstd", rstd);
  const Written by_x(kOp, "x_grad", x_grad), by_weight(kOp, "weight_grad", weight_grad);
  const std::size_t rows = of_rows.size(), columns = by_weight.size();
  check_count(kOp, "x", from.size(), rows * columns);
  check_count(kOp, "grad", slopes.size(), from.size());
  check_count(kOp, "x_grad", by_x.size(), from.size());
  const Weight scale(kOp, weight, columns);
  const int at_most = checked_threads(kOp, threads);
  const nb::gil_scoped_release release;
  rms_norm_backward({slopes.data(), from.data(), of_rows.data(), scale.data(), by_x.data(),
                     by_weight.data(), rows, columns},
                    at_most);
}

}  // namespace

void bind_norms(nb::module_& module) {
  module.def("rms_norm", &forward, "x"_a, "weight"_a.none(), "eps"_a, "out"_a, "rstd"_a,
             "threads"_a = 1,
             R"(RMS norm of rows, of which there are as many as rstd has elements.

The bits do not depend on threads.

Args:
    x, weight, out, rstd: Contiguous arrays of float32 on the CPU, the last two written.
    threads: Threads to use at most, 1 to 256.

Raises:
    DtypeError: Another dtype or device.
    ValueError: Sizes, strides or threads do not fit.)");
  module.def("rms_norm_backward", &backward, "grad"_a, "x"_a, "rstd"_a, "weight"_a.none(),
             "x_grad"_a, "weight_grad"_a, "threads"_a = 1,
             R"(Gradients of rms_norm by its two operands, the second without a weight too.

Args:
    grad, x, rstd, weight, x_grad, weight_grad: As there, the last two written.
    threads: As there.)");
}

}  // namespace gt
