// Converts and checks Python's arguments for reductions of arrays. No computation here.
#include "bind/reductions.h"

#include <stdexcept>

#include "bind/array_argument.h"
#include "core/calls.h"
#include "core/message.h"
#include "cpu/array_path.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

auto reduction(const char* name, Reduce kind) {
  return [name, kind](const In& x, const Out& out, std::size_t inner) {
    count_call();
    if (x.size() == 0 || out.size() == 0 || inner == 0 || x.size() % out.size() != 0 ||
        out.size() % inner != 0) {
      throw std::invalid_argument(message(name, ": ", x.size(), " elements do not make ",
                                          out.size(), " with ", inner, " beside each other"));
    }
    const std::size_t count = x.size() / out.size();
    const Reduction& run = array_path().reductions[static_cast<std::size_t>(kind)];
    for (std::size_t at = 0; at < out.size(); at += inner) {
      if (inner == 1) {
        out.data()[at] = run.row(x.data() + at * count, count);
      } else {
        run.columns(x.data() + at * count, count, inner, out.data() + at);
      }
    }
  };
}

}  // namespace

void bind_reductions(nb::module_& module) {
  struct Row {
    const char* name;
    Reduce kind;
  };
  constexpr Row kRows[] = {
      {"sum", Reduce::kSum}, {"amax", Reduce::kLargest}, {"amin", Reduce::kSmallest}};
  for (const Row& row : kRows) {
    module.def(
        row.name, reduction(row.name, row.kind), "x"_a.noconvert(), "out"_a.noconvert(), "inner"_a,
        "Reduces x, [outer, count, inner], over its middle dimension to out, [outer, inner]:\n"
        "contiguous arrays of float32 with elements. NaN is above and below all others.");
  }
}

}  // namespace gt
