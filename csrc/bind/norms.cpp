// Converts and checks Python's arguments for RMS norm and batch norm. No computation here.
#include "bind/norms.h"

#include <optional>
#include <stdexcept>

#include "bind/array_argument.h"
#include "bind/contiguous_argument.h"
#include "core/calls.h"
#include "cpu/batch_norm.h"
#include "cpu/norms.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

using Read = Contiguous<float, TensorArgument>;
using Written = Contiguous<float, OutputArgument>;

// What may be None.
class Optional {
 public:
  Optional(const char* op, const char* name, nb::handle object, std::size_t count) {
    if (object.is_none()) {
      return;
    }
    given_.emplace(op, name, object);
    check_count(op, name, given_->size(), count);
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
  const Optional scale(kOp, "weight", weight, columns);
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
  const Optional scale(kOp, "weight", weight, columns);
  const int at_most = checked_threads(kOp, threads);
  const nb::gil_scoped_release release;
  rms_norm_backward({slopes.data(), from.data(), of_rows.data(), scale.data(), by_x.data(),
                     by_weight.data(), rows, columns},
                    at_most);
}

// Of as many channels as there are means, in rows of a batch.
ChannelShape channel_shape(const char* op, std::size_t numbers, std::size_t channels,
                           std::int64_t inner) {
  const std::size_t beside = inner < 0 ? 0 : static_cast<std::size_t>(inner);
  const std::size_t row = channels * beside;  // of what is no more than there is
  if (row == 0 || beside > numbers || numbers % row != 0) {
    throw std::invalid_argument(message(op, ": x has ", numbers, " elements, which are no rows of ",
                                        channels, " channels of ", inner));
  }
  const ChannelShape shape{numbers / row, channels, beside};
  if (!takes_batch_norm(shape)) {
    throw std::invalid_argument(
        message(op, ": inner is ", inner, ", not 1 and less than ", kInnerMin));
  }
  return shape;
}

void batch_norm_forward(nb::handle x, nb::handle weight, nb::handle bias, std::int64_t inner,
                        double eps, nb::handle out, nb::handle mean, nb::handle rstd,
                        nb::handle var, int threads) {
  count_call();
  constexpr const char* kOp = "batch_norm";
  const Read from(kOp, "x", x);
  const Written to(kOp, "out", out), means(kOp, "mean", mean), rstds(kOp, "rstd", rstd),
      vars(kOp, "var", var);
  const std::size_t channels = means.size();
  const ChannelShape shape = channel_shape(kOp, from.size(), channels, inner);
  check_count(kOp, "out", to.size(), from.size());
  check_count(kOp, "rstd", rstds.size(), channels);
  check_count(kOp, "var", vars.size(), channels);
  const Optional scale(kOp, "weight", weight, channels), shift(kOp, "bias", bias, channels);
  const int at_most = checked_threads(kOp, threads);
  const nb::gil_scoped_release release;
  batch_norm({from.data(), scale.data(), shift.data(), eps, to.data(), means.data(), rstds.data(),
              vars.data(), shape},
             at_most);
}

void batch_norm_gradient(nb::handle grad, nb::handle x, nb::handle mean, nb::handle rstd,
                         nb::handle weight, std::int64_t inner, nb::handle x_grad,
                         nb::handle weight_grad, nb::handle bias_grad, int threads) {
  count_call();
  constexpr const char* kOp = "batch_norm_backward";
  const Read slopes(kOp, "grad", grad), from(kOp, "x", x), means(kOp, "mean", mean),
      rstds(kOp, "rstd", rstd);
  const Written by_x(kOp, "x_grad", x_grad), by_weight(kOp, "weight_grad", weight_grad),
      by_bias(kOp, "bias_grad", bias_grad);
  const std::size_t channels = means.size();
  const ChannelShape shape = channel_shape(kOp, from.size(), channels, inner);
  check_count(kOp, "grad", slopes.size(), from.size());
  check_count(kOp, "x_grad", by_x.size(), from.size());
  check_count(kOp, "rstd", rstds.size(), channels);
  check_count(kOp, "weight_grad", by_weight.size(), channels);
  check_count(kOp, "bias_grad", by_bias.size(), channels);
  const Optional scale(kOp, "weight", weight, channels);
  const int at_most = checked_threads(kOp, threads);
  const nb::gil_scoped_release release;
  batch_norm_backward({slopes.data(), from.data(), means.data(), rstds.data(), scale.data(),
                       by_x.data(), by_weight.data(), by_bias.data(), shape},
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
  module.def("batch_norm", &batch_norm_forward, "x"_a, "weight"_a.none(), "bias"_a.none(),
             "inner"_a, "eps"_a, "out"_a, "mean"_a, "rstd"_a, "var"_a, "threads"_a = 1,
             R"(Batch norm of an array [batch, channels, inner] by its own statistics.

Statistics are sums in float64. The bits do not depend on threads.

Args:
    x, weight, bias, out: Contiguous arrays of float32 on the CPU, the last one written; weight and
        bias [channels] or None.
    inner: Numbers of a channel beside each other: 1, or 8 and more.
    mean, rstd, var: [channels], written: the mean, 1 / sqrt(variance + eps) and the unbiased
        variance.
    threads: Threads to use at most, 1 to 256.

Raises:
    DtypeError: Another dtype or device.
    ValueError: Sizes, strides, inner or threads do not fit.)");
  module.def("batch_norm_backward", &batch_norm_gradient, "grad"_a, "x"_a, "mean"_a, "rstd"_a,
             "weight"_a.none(), "inner"_a, "x_grad"_a, "weight_grad"_a, "bias_grad"_a,
             "threads"_a = 1,
             R"(Gradients of batch_norm by its three operands, the last two without a weight too.

Args:
    grad, x, mean, rstd, weight, inner: As there.
    x_grad, weight_grad, bias_grad: Like x and [channels], written.
    threads: As there.)");
}

}  // namespace gt
