// Converts and checks Python's arguments for chains of elementwise operators. No computation here.
#include "bind/chain.h"

#include <nanobind/stl/string_view.h>

#include <deque>
#include <string_view>
#include <vector>

#include "bind/tensor_argument.h"
#include "core/calls.h"
#include "core/message.h"
#include "cpu/chain.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

LoopOperator op_of(std::string_view name) {
  for (const LoopFacts& facts : LOOP_FACTS) {
    if (facts.row == name && has(facts.op, STEP)) {
      return facts.op;
    }
  }
  throw nb::value_error(message("chain: it has no operator ", name).c_str());
}

// Steps of a chain, and the arrays that they refer to.
struct Steps {
  std::deque<TensorArgument> held;
  std::vector<ChainStep> steps;

  explicit Steps(const nb::sequence& given) {
    for (const nb::handle one : given) {
      const auto step = nb::cast<nb::tuple>(one);
      const auto name = nb::cast<std::string_view>(step[0]);
      ChainStep made{op_of(name), {}};
      const auto operands = static_cast<std::size_t>(operands_of(made.op));
      if (step.size() != operands + 1) {
        throw nb::value_error(message("chain: ", name, " has ", operands, " operands").c_str());
      }
      for (std::size_t side = 0; side < operands; ++side) {
        made.operands[side] = operand(step[side + 1]);
      }
      steps.push_back(made);
    }
  }

  ChainOperand operand(nb::handle given) {
    using Kind = ChainOperand::Kind;
    if (given.is_none()) {
      return {};
    }
    if (nb::isinstance<nb::float_>(given) || nb::isinstance<nb::int_>(given)) {
      return {Kind::kNumber, static_cast<float>(nb::cast<double>(given)), {}};
    }
    return {Kind::kTensor, 0, held.emplace_back("chain", "an operand", given).view()};
  }

  int count() const { return static_cast<int>(steps.size()); }
};

}  // namespace

void bind_chain(nb::module_& module) {
  module.def(
      "chain_rows",
      [] {
        nb::list rows;
        for (const LoopFacts& facts : LOOP_FACTS) {
          if (has(facts.op, STEP) && has(facts.op, JOINS)) {
            rows.append(nb::str(facts.row.data(), facts.row.size()));
          }
        }
        return rows;
      },
      "Rows that run in one pass with such rows before and after them, as steps of a chain.");
  module.def(
      "fitting_chain",
      [](nb::handle out, const nb::sequence& given, int least, int threads) {
        const OutputArgument result("fitting_chain", "out", out);
        const Steps steps(given);
        const nb::gil_scoped_release others;
        const int ran =
            fitting_chain(result.view(), steps.steps.data(), steps.count(), least, threads);
        if (ran > 0) {
          count_call();
        }
        return ran;
      },
      "out"_a, "steps"_a, "least"_a = 1, "threads"_a = 1,
      "Computes as many steps of a chain from the first on as fit, and returns how many; 0,\n"
      "with nothing done, where fewer than `least` do. They fit where arrays are contiguous, of\n"
      "float32 (or bool, int32 and int64, which stand for float32), and as `out` is, of one\n"
      "element, or rows or columns that are repeated.");
  module.def(
      "chain",
      [](nb::handle out, const nb::sequence& given, int threads) {
        count_call();
        const OutputArgument result("chain", "out", out);
        const Steps steps(given);
        const nb::gil_scoped_release others;
        chain(result.view(), steps.steps.data(), steps.count(), threads);
      },
      "out"_a, "steps"_a, "threads"_a = 1,
      "Computes elementwise operators one after the other in one pass: (name, operands),\n"
      "an operand being an array, a number, or None for the result of the step before.\n"
      "`out`, contiguous, may be the memory of an array of its size that the first step alone\n"
      "reads. ValueError where a step does not fit.");
}

}  // namespace gt
