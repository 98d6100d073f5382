// Converts and checks Python's arguments for choices and steps of optimizers. No computation here.
#include "bind/arrays.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

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

void bind_choices(nb::module_& module) {
  module.def("where", &where, "condition"_a, "x"_a, "y"_a, "out"_a, "threads"_a = 1,
             "x where condition, else y, both of out's dtype and size or one element; bools that\n"
             "fill out a number of times. All contiguous; out may be x or y.");
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
  bind_choices(module);
  bind_updates(module);
}

}  // namespace gt
