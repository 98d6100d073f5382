// Converts and checks Python's arguments for what is computed along one dimension. No computation
// here.
#include "bind/dims.h"

#include <stdexcept>
#include <string>

#include "bind/array_argument.h"
#include "bind/contiguous_argument.h"
#include "core/calls.h"
#include "core/message.h"
#include "cpu/dims.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

template <class T>
using Read = Contiguous<T, TensorArgument>;
template <class T>
using Written = Contiguous<T, OutputArgument>;

// Of so many elements, that make `results` numbers with `inner` beside each other.
DimShape checked_shape(const char* op, std::size_t elements, std::size_t results,
                       std::size_t inner) {
  if (elements == 0 || results == 0 || inner == 0 || elements % results != 0 ||
      results % inner != 0) {
    throw std::invalid_argument(message(op, ": ", elements, " elements do not make ", results,
                                        " with ", inner, " beside each other"));
  }
  return {results / inner, elements / results, inner};
}

// Of elements as kernels take them; a bool is a byte.
template <class T, class As, class Sum>
void running_sum_of(nb::handle x, nb::handle out, std::size_t count, std::size_t inner,
                    int threads) {
  constexpr const char* kOp = "cumsum";
  const Read<T> from(kOp, "x", x);
  const Written<Sum> to(kOp, "out", out);
  check_count(kOp, "out", to.size(), from.size());
  if (count == 0 || from.size() % count != 0) {
    throw std::invalid_argument(
        message(kOp, ": ", from.size(), " elements are not a multiple of ", count));
  }
  const DimShape shape = checked_shape(kOp, from.size(), from.size() / count, inner);
  const int at_most = checked_threads(kOp, threads);
  const nb::gil_scoped_release release;
  cumsum(reinterpret_cast<const As*>(from.data()), to.data(), shape, at_most);
}

void running_sum(nb::handle x, nb::handle out, std::size_t count, std::size_t inner, int threads) {
  count_call();
  const bool is_bool = TensorArgument("cumsum", "x", x).view().element == Element::kBool;
  const auto run = is_bool ? running_sum_of<bool, std::uint8_t, std::int64_t>
                           : running_sum_of<float, float, float>;
  run(x, out, count, inner, threads);
}

void true_count(nb::handle x, nb::handle out, std::size_t inner, int threads) {
  count_call();
  constexpr const char* kOp = "count_true";
  const Read<bool> from(kOp, "x", x);
  const Written<std::int64_t> to(kOp, "out", out);
  const DimShape shape = checked_shape(kOp, from.size(), to.size(), inner);
  const int at_most = checked_threads(kOp, threads);
  const nb::gil_scoped_release release;
  count_true(reinterpret_cast<const std::uint8_t*>(from.data()), to.data(), shape, at_most);
}

auto place_of(const char* op, Place kind) {
  return [op, kind](nb::handle x, nb::handle out, std::size_t inner, int threads) {
    count_call();
    const Read<float> from(op, "x", x);
    const Written<std::int64_t> to(op, "out", out);
    const DimShape shape = checked_shape(op, from.size(), to.size(), inner);
    if (shape.count > kPlacesMost) {
      throw std::invalid_argument(message(op, ": ", shape.count, " elements are too many"));
    }
    const int at_most = checked_threads(op, threads);
    const nb::gil_scoped_release release;
    places(kind, from.data(), to.data(), shape, at_most);
  };
}

template <class T, class As>
void truth_of(const char* op, Truth kind, nb::handle x, nb::handle out, std::size_t inner,
              int threads) {
  const Read<T> from(op, "x", x);
  const Written<bool> to(op, "out", out);
  const DimShape shape = checked_shape(op, from.size(), to.size(), inner);
  const int at_most = checked_threads(op, threads);
  const nb::gil_scoped_release release;
  truth(kind, reinterpret_cast<const As*>(from.data()), reinterpret_cast<std::uint8_t*>(to.data()),
        shape, at_most);
}

auto truth_by(const char* op, Truth kind) {
  return [op, kind](nb::handle x, nb::handle out, std::size_t inner, int threads) {
    count_call();
    const bool is_bool = TensorArgument(op, "x", x).view().element == Element::kBool;
    const auto run = is_bool ? truth_of<bool, std::uint8_t> : truth_of<float, float>;
    run(op, kind, x, out, inner, threads);
  };
}

auto spread_of(const char* op, bool is_root) {
  return [op, is_root](nb::handle x, nb::handle out, std::size_t inner, double correction,
                       int threads) {
    count_call();
    const Read<float> from(op, "x", x);
    const Written<float> to(op, "out", out);
    const DimShape shape = checked_shape(op, from.size(), to.size(), inner);
    if (!(correction < static_cast<double>(shape.count))) {
      throw std::invalid_argument(message(op, ": correction ", std::to_string(correction),
                                          " is not below the count of ", shape.count));
    }
    const int at_most = checked_threads(op, threads);
    const nb::gil_scoped_release release;
    spread({correction, is_root}, from.data(), to.data(), shape, at_most);
  };
}

constexpr const char* kArguments =
    "\n\nx is [outer, count, inner] and out [outer, inner]: contiguous arrays with elements. The "
    "bits do\nnot depend on threads.";

}  // namespace

void bind_dims(nb::module_& module) {
  const auto text = [](const char* what) { return std::string(what) + kArguments; };
  module.def("cumsum", &running_sum, "x"_a, "out"_a, "count"_a, "inner"_a, "threads"_a = 1,
             "Running sums of x, [outer, count, inner], along its middle dimension into out, of\n"
             "its shape: contiguous arrays of float32, added in float64, one after another; or of\n"
             "bool into int64.");
  module.def("count_true", &true_count, "x"_a, "out"_a, "inner"_a, "threads"_a = 1,
             text("How many bools are true: int64.").c_str());
  struct PlaceRow {
    const char* name;
    Place kind;
  };
  for (const PlaceRow& row :
       {PlaceRow{"argmax", Place::kLargest}, PlaceRow{"argmin", Place::kSmallest}}) {
    module.def(row.name, place_of(row.name, row.kind), "x"_a, "out"_a, "inner"_a, "threads"_a = 1,
               text("Places, int64, of extreme numbers of float32: of equal ones the first; NaN\n"
                    "before all others.")
                   .c_str());
  }
  struct TruthRow {
    const char* name;
    Truth kind;
  };
  for (const TruthRow& row : {TruthRow{"any", Truth::kAny}, TruthRow{"all", Truth::kAll}}) {
    module.def(
        row.name, truth_by(row.name, row.kind), "x"_a, "out"_a, "inner"_a, "threads"_a = 1,
        text("Whether one number, or each, is not zero: bools, of float32 or bools.").c_str());
  }
  for (const char* name : {"var", "std"}) {
    module.def(name, spread_of(name, name[0] == 's'), "x"_a, "out"_a, "inner"_a, "correction"_a,
               "threads"_a = 1,
               text("Variances, or their roots, of float32: divided by count - correction, which\n"
                    "is above zero.")
                   .c_str());
  }
}

}  // namespace gt
