// Converts and checks Python's arguments for the array kernels. No computation here.
#include "bind/arrays.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <optional>
#include <stdexcept>
#include <vector>

#include "bind/array_argument.h"
#include "bind/contiguous_argument.h"
#include "core/calls.h"
#include "core/message.h"
#include "cpu/array_path.h"
#include "cpu/choices.h"
#include "cpu/updates.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

auto unary(const char* name, Unary kind) {
  return [name, kind](const In& x, const Out& out) {
    count_call();
    check_count(name, "out", out.size(), x.size());
    array_path().unary[static_cast<std::size_t>(kind)](x.data(), out.data(), x.size());
  };
}

auto unary_backward(const char* name, UnaryBackward kind) {
  return [name, kind](const In& grad, const In& kept, const Out& out) {
    count_call();
    check_count(name, "kept", kept.size(), grad.size());
    check_count(name, "out", out.size(), grad.size());
    array_path().unary_backward[static_cast<std::size_t>(kind)](grad.data(), kept.data(),
                                                                out.data(), grad.size());
  };
}

void leaky_relu(const In& x, float slope, const Out& out) {
  count_call();
  check_count("leaky_relu", "out", out.size(), x.size());
  array_path().leaky_relu(x.data(), slope, out.data(), x.size());
}

void softplus(const In& x, float beta, float threshold, const Out& out) {
  count_call();
  check_count("softplus", "out", out.size(), x.size());
  array_path().softplus(x.data(), beta, threshold, out.data(), x.size());
}

void softplus_backward(const In& grad, const In& x, float beta, float threshold, const Out& out) {
  count_call();
  check_count("softplus_backward", "x", x.size(), grad.size());
  check_count("softplus_backward", "out", out.size(), grad.size());
  array_path().softplus_backward(grad.data(), x.data(), beta, threshold, out.data(), grad.size());
}

void leaky_relu_backward(const In& grad, const In& x, float slope, const Out& out) {
  count_call();
  check_count("leaky_relu_backward", "x", x.size(), grad.size());
  check_count("leaky_relu_backward", "out", out.size(), grad.size());
  array_path().leaky_relu_backward(grad.data(), x.data(), slope, out.data(), grad.size());
}

void clamp(const In& x, double low, double high, const Out& out) {
  count_call();
  check_count("clamp", "out", out.size(), x.size());
  array_path().clamp(x.data(), static_cast<float>(low), static_cast<float>(high), out.data(),
                     x.size());
}

// Checks the operands of a choice: each has `count` elements, or one.
ChoiceSides checked_sides(const bool* condition, const TensorView& x, const TensorView& y,
                          std::size_t count) {
  constexpr const char* kOp = "where";
  const auto is_one = [count](const char* name, const TensorView& view) {
    const std::size_t size = contiguous_elements(kOp, name, view);
    if (size != 1) {
      check_count(kOp, name, size, count);
    }
    return size == 1 && count != 1;
  };
  return {reinterpret_cast<const std::uint8_t*>(condition), x.data, y.data, is_one("x", x),
          is_one("y", y)};
}

void where(nb::handle condition, nb::handle x, nb::handle y, nb::handle out, int threads) {
  count_call();
  constexpr const char* kOp = "where";
  const Contiguous<bool, TensorArgument> bools(kOp, "condition", condition);
  const TensorArgument left(kOp, "x", x), right(kOp, "y", y);
  const OutputArgument written(kOp, "out", out);
  const TensorView& to = written.view();
  for (const TensorView& view : {left.view(), right.view()}) {
    if (view.element != to.element) {
      throw DtypeError(
          message(kOp, ": ", element_name(view.element), " into ", element_name(to.element)));
    }
  }
  const std::size_t count = contiguous_elements(kOp, "out", to);
  const ChoiceSides sides = checked_sides(bools.data(), left.view(), right.view(), count);
  const int at_most = checked_threads(kOp, threads);
  if (count == 0) {
    return;
  }
  if (bools.size() == 0 || count % bools.size() != 0) {
    throw std::invalid_argument(
        message(kOp, ": out has ", count, " elements, condition ", bools.size()));
  }
  const nb::gil_scoped_release release;
  choose({element_bytes(to.element), sides, bools.size(), to.data, count}, at_most);
}

using RowsLoop = void (*ArrayPath::*)(const float*, float*, std::size_t, std::size_t);

auto rows_function(const char* name, RowsLoop loop) {
  return [name, loop](const In& x, const Out& out) {
    count_call();
    const Rows rows = rows_of(name, x);
    check_count(name, "out", out.size(), x.size());
    (array_path().*loop)(x.data(), out.data(), rows.count, rows.columns);
  };
}

using RowBackwardLoop = void (*ArrayPath::*)(const float*, const float*, float*, std::size_t);

auto row_backward(const char* name, RowBackwardLoop loop) {
  return [name, loop](const In& grad, const In& y, const Out& out) {
    count_call();
    const Rows rows = rows_of(name, grad);
    check_count(name, "y", y.size(), grad.size());
    check_count(name, "out", out.size(), grad.size());
    const auto run = array_path().*loop;
    for (std::size_t row = 0; row < rows.count; ++row) {
      const std::size_t at = row * rows.columns;
      run(grad.data() + at, y.data() + at, out.data() + at, rows.columns);
    }
  };
}

void layer_norm(const In& x, const std::optional<In>& weight, const std::optional<In>& bias,
                float eps, const Out& out, const Out& mean, const Out& rstd) {
  count_call();
  const std::size_t rows = mean.size();
  const std::size_t columns = rows == 0 ? 0 : x.size() / rows;
  check_count("layer_norm", "x", x.size(), rows * columns);
  check_count("layer_norm", "out", out.size(), x.size());
  check_count("layer_norm", "rstd", rstd.size(), rows);
  const float* scale = optional_data("layer_norm", "weight", weight, columns);
  const float* level = optional_data("layer_norm", "bias", bias, columns);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t at = row * columns;
    array_path().layer_norm(x.data() + at, scale, level, eps, out.data() + at, mean.data() + row,
                            rstd.data() + row, columns);
  }
}

void layer_norm_backward(const In& grad, const In& x, const In& mean, const In& rstd,
                         const std::optional<In>& weight, const Out& x_grad, const Out& weight_grad,
                         const Out& bias_grad) {
  count_call();
  constexpr const char* kOp = "layer_norm_backward";
  const std::size_t rows = mean.size();
  const std::size_t columns = rows == 0 ? 0 : x.size() / rows;
  check_count(kOp, "x", x.size(), rows * columns);
  check_count(kOp, "grad", grad.size(), x.size());
  check_count(kOp, "rstd", rstd.size(), rows);
  check_count(kOp, "x_grad", x_grad.size(), x.size());
  check_count(kOp, "bias_grad", bias_grad.size(), weight_grad.size());
  if (rows > 0) {
    check_count(kOp, "weight_grad", weight_grad.size(), columns);
  }
  const float* scale = optional_data(kOp, "weight", weight, weight_grad.size());
  std::fill_n(weight_grad.data(), weight_grad.size(), 0.0F);
  std::fill_n(bias_grad.data(), bias_grad.size(), 0.0F);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t at = row * columns;
    array_path().layer_norm_backward(grad.data() + at, x.data() + at, mean.data()[row],
                                     rstd.data()[row], scale, x_grad.data() + at,
                                     weight_grad.data(), bias_grad.data(), columns);
  }
}

void cross_entropy_backward(const In& log_probs, const Indices& target, const In& scale,
                            const Out& out) {
  count_call();
  constexpr const char* kOp = "cross_entropy_backward";
  const Rows rows = rows_of(kOp, log_probs);
  check_count(kOp, "target", target.size(), rows.count);
  check_count(kOp, "scale", scale.size(), rows.count);
  check_count(kOp, "out", out.size(), log_probs.size());
  for (std::size_t row = 0; row < rows.count; ++row) {
    const std::int64_t place = target.data()[row];
    if (place >= static_cast<std::int64_t>(rows.columns)) {
      throw std::invalid_argument(
          message(kOp, ": target ", place, " of row ", row, " is no class of ", rows.columns));
    }
    const std::size_t at = row * rows.columns;
    array_path().cross_entropy_backward(log_probs.data() + at, place, scale.data()[row],
                                        out.data() + at, rows.columns);
  }
}

std::int64_t cross_entropy(const In& x, const Indices& target, std::int64_t ignore_index,
                           const Out& log_probs, const Out& losses) {
  count_call();
  constexpr const char* kOp = "cross_entropy";
  const Rows rows = rows_of(kOp, x);
  check_count(kOp, "target", target.size(), rows.count);
  check_count(kOp, "log_probs", log_probs.size(), x.size());
  check_count(kOp, "losses", losses.size(), rows.count);
  array_path().log_softmax(x.data(), log_probs.data(), rows.count, rows.columns);
  std::int64_t kept = 0;
  for (std::size_t row = 0; row < rows.count; ++row) {
    const std::int64_t place = target.data()[row];
    const float* out = log_probs.data() + row * rows.columns;
    losses.data()[row] = 0.0F;
    if (place == ignore_index) {
      continue;
    }
    if (static_cast<std::size_t>(place) >= rows.columns) {  // a negative one is too large
      throw nb::index_error(message("Target ", place, " is out of bounds.").c_str());
    }
    losses.data()[row] = -out[place];
    ++kept;
  }
  return kept;
}

using Ins = std::vector<In>;
using Outs = std::vector<Out>;

// Requires each array of `list` to have its parameter's size, before any parameter is written. The
// list is empty for a state that no parameter has.
template <class Array>
void check_list(const char* op, const char* name, const std::vector<Array>& list,
                const Outs& params, bool is_optional = false) {
  if (is_optional && list.empty()) {
    return;
  }
  if (list.size() != params.size()) {
    throw std::invalid_argument(
        message(op, ": ", name, " has ", list.size(), " arrays, not ", params.size()));
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    check_count(op, name, list[i].size(), params[i].size());
  }
}

float* data_at(const Outs& list, std::size_t place) {
  return list.empty() ? nullptr : list[place].data();
}

void adam(const Outs& params, const Ins& grads, const Outs& avgs, const Outs& avg_sqs,
          const Outs& max_sqs, double lr, double beta1, double beta2, double eps,
          double weight_decay, std::int64_t step, bool decoupled, bool maximize, int threads) {
  count_call();
  check_list("adam", "grads", grads, params);
  check_list("adam", "avgs", avgs, params);
  check_list("adam", "avg_sqs", avg_sqs, params);
  check_list("adam", "max_sqs", max_sqs, params, true);
  const int at_most = checked_threads("adam", threads);
  const AdamStep numbers = adam_step(
      {lr, beta1, beta2, eps, weight_decay, static_cast<double>(step), decoupled, maximize});
  for (std::size_t i = 0; i < params.size(); ++i) {
    gt::adam({params[i].data(), grads[i].data(), avgs[i].data(), avg_sqs[i].data(),
              data_at(max_sqs, i), params[i].size()},
             numbers, at_most);
  }
}

void sgd(const Outs& params, const Ins& grads, const Outs& buffers, double lr, double momentum,
         double dampening, double weight_decay, bool nesterov, bool maximize, bool first_step) {
  count_call();
  check_list("sgd", "grads", grads, params);
  check_list("sgd", "buffers", buffers, params, true);
  const SgdStep numbers{
      .lr = static_cast<float>(lr),
      .momentum = static_cast<float>(momentum),
      .rest_dampening = static_cast<float>(1.0 - dampening),
      .weight_decay = static_cast<float>(weight_decay),
      .sign = maximize ? -1.0F : 1.0F,
      .nesterov = nesterov,
      .first = first_step,
  };
  for (std::size_t i = 0; i < params.size(); ++i) {
    array_path().sgd(params[i].data(), grads[i].data(), data_at(buffers, i), numbers,
                     params[i].size());
  }
}

void bind_elementwise(nb::module_& module) {
  struct Row {
    const char* name;
    Unary kind;
  };
  constexpr Row kRows[] = {{"relu", Unary::kRelu}, {"sigmoid", Unary::kSigmoid},
                           {"tanh", Unary::kTanh}, {"erf", Unary::kErf},
                           {"exp", Unary::kExp},   {"silu", Unary::kSilu},
                           {"gelu", Unary::kGelu}, {"gelu_tanh", Unary::kGeluTanh},
                           {"sign", Unary::kSign}, {"rsqrt", Unary::kRsqrt}};
  for (const Row& row : kRows) {
    module.def(row.name, unary(row.name, row.kind), "x"_a.noconvert(), "out"_a.noconvert(),
               "The function of each element of x: contiguous arrays of float32; out may be x.");
  }
  module.def("leaky_relu", &leaky_relu, "x"_a.noconvert(), "slope"_a, "out"_a.noconvert(),
             "x where positive, else slope times x; contiguous float32.");
  module.def("softplus", &softplus, "x"_a.noconvert(), "beta"_a, "threshold"_a, "out"_a.noconvert(),
             "ln(1 + e^(x beta)) / beta of each element; x where x beta is above the threshold.");
  module.def("softplus_backward", &softplus_backward, "grad"_a.noconvert(), "x"_a.noconvert(),
             "beta"_a, "threshold"_a, "out"_a.noconvert(), "Gradient of softplus by x.");
  module.def("leaky_relu_backward", &leaky_relu_backward, "grad"_a.noconvert(), "x"_a.noconvert(),
             "slope"_a, "out"_a.noconvert(), "Gradient of leaky_relu by its operand x.");
  module.def("clamp", &clamp, "x"_a.noconvert(), "low"_a, "high"_a, "out"_a.noconvert(),
             "x limited to [low, high], NaN as it is; contiguous float32.");
  module.def("where", &where, "condition"_a, "x"_a, "y"_a, "out"_a, "threads"_a = 1,
             "x where condition, else y, both of out's dtype and size or one element; bools that\n"
             "fill out a number of times. All contiguous; out may be x or y.");
  struct BackwardRow {
    const char* name;
    UnaryBackward kind;
  };
  constexpr BackwardRow kBackward[] = {
      {"relu_backward", UnaryBackward::kRelu}, {"sigmoid_backward", UnaryBackward::kSigmoid},
      {"tanh_backward", UnaryBackward::kTanh}, {"silu_backward", UnaryBackward::kSilu},
      {"gelu_backward", UnaryBackward::kGelu}, {"gelu_tanh_backward", UnaryBackward::kGeluTanh}};
  for (const BackwardRow& row : kBackward) {
    module.def(row.name, unary_backward(row.name, row.kind), "grad"_a.noconvert(),
               "kept"_a.noconvert(), "out"_a.noconvert(),
               "The gradient by the operand: kept is the result of relu, sigmoid and tanh, of the\n"
               "others the operand. Contiguous arrays of float32.");
  }
}

void bind_rows(nb::module_& module) {
  module.def("softmax", rows_function("softmax", &ArrayPath::softmax), "x"_a.noconvert(),
             "out"_a.noconvert(), "Softmax over the last dimension; contiguous float32.");
  module.def("log_softmax", rows_function("log_softmax", &ArrayPath::log_softmax),
             "x"_a.noconvert(), "out"_a.noconvert(),
             "Log-softmax over the last dimension; contiguous float32.");
  module.def("softmax_backward", row_backward("softmax_backward", &ArrayPath::softmax_backward),
             "grad"_a.noconvert(), "y"_a.noconvert(), "out"_a.noconvert(),
             "Gradient of softmax by its operand; y is its result.");
  module.def("log_softmax_backward",
             row_backward("log_softmax_backward", &ArrayPath::log_softmax_backward),
             "grad"_a.noconvert(), "y"_a.noconvert(), "out"_a.noconvert(),
             "Gradient of log_softmax by its operand; y is its result.");
  module.def("layer_norm", &layer_norm, "x"_a.noconvert(), "weight"_a.noconvert().none(),
             "bias"_a.noconvert().none(), "eps"_a, "out"_a.noconvert(), "mean"_a.noconvert(),
             "rstd"_a.noconvert(),
             "Layer norm of rows, of which there are as many as mean has elements.");
  module.def("layer_norm_backward", &layer_norm_backward, "grad"_a.noconvert(), "x"_a.noconvert(),
             "mean"_a.noconvert(), "rstd"_a.noconvert(), "weight"_a.noconvert().none(),
             "x_grad"_a.noconvert(), "weight_grad"_a.noconvert(), "bias_grad"_a.noconvert(),
             "Gradients of layer_norm by its three operands.");
  module.def(
      "cross_entropy", &cross_entropy, "x"_a.noconvert(), "target"_a.noconvert(), "ignore_index"_a,
      "log_probs"_a.noconvert(), "losses"_a.noconvert(),
      "Log-softmax of each row and its negative at the target: 0 of rows that are left out.\n"
      "How many are not. IndexError where a target is no class.");
  module.def("cross_entropy_backward", &cross_entropy_backward, "log_probs"_a.noconvert(),
             "target"_a.noconvert(), "scale"_a.noconvert(), "out"_a.noconvert(),
             "scale (exp(log_probs) - 1 at target) of each row; zeros where target is negative.");
}

void bind_updates(nb::module_& module) {
  module.def("adam", &adam, "params"_a.noconvert(), "grads"_a.noconvert(), "avgs"_a.noconvert(),
             "avg_sqs"_a.noconvert(), "max_sqs"_a.noconvert(), "lr"_a, "beta1"_a, "beta2"_a,
             "eps"_a, "weight_decay"_a, "step"_a, "decoupled"_a, "maximize"_a, "threads"_a = 1,
             "One step of Adam (decoupled: of AdamW) over each of params and its state, all\n"
             "float32; max_sqs is empty without amsgrad. The bits do not depend on threads.");
  module.def("sgd", &sgd, "params"_a.noconvert(), "grads"_a.noconvert(), "buffers"_a.noconvert(),
             "lr"_a, "momentum"_a, "dampening"_a, "weight_decay"_a, "nesterov"_a, "maximize"_a,
             "first_step"_a,
             "One step of SGD over each of params and its momentum buffer, float32; buffers is\n"
             "empty without momentum.");
}

}  // namespace

void bind_arrays(nb::module_& module) {
  bind_elementwise(module);
  bind_rows(module);
  bind_updates(module);
}

}  // namespace gt
