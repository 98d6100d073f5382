// Converts and checks Python's arguments for indexing and copies. No computation here.
#include "bind/places.h"

#include <stdexcept>
#include <vector>

#include "bind/array_argument.h"
#include "bind/contiguous_argument.h"
#include "bind/tensor_argument.h"
#include "core/calls.h"
#include "core/message.h"
#include "cpu/array_path.h"
#include "cpu/places.h"
#include "cpu/sort.h"
#include "cpu/strided_copy.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

template <class Array>
Along along_of(const char* op, const Array& x, const Indices& index, std::size_t dim) {
  if (dim >= x.ndim() || index.ndim() != x.ndim()) {
    throw std::invalid_argument(message(op, ": dimension ", dim, " of an array of ", x.ndim(),
                                        " dimensions and an index of ", index.ndim()));
  }
  Along along{std::vector<std::size_t>(x.ndim()), std::vector<std::size_t>(x.ndim()), 0, 1};
  std::size_t stride = 1;
  for (std::size_t at = x.ndim(); at-- > 0;) {
    along.sizes[at] = index.shape(at);
    along.strides[at] = at == dim ? 0 : stride;
    if (at == dim) {
      along.count = x.shape(at);
      along.stride = stride;
    } else if (index.shape(at) > x.shape(at)) {
      throw std::invalid_argument(message(op, ": dimension ", at, " has ", x.shape(at),
                                          " elements in the array, ", index.shape(at),
                                          " in the index"));
    }
    stride *= x.shape(at);
  }
  return along;
}

bool gather_of(const In& x, const Indices& index, std::size_t dim, const Out& out) {
  count_call();
  const Along along = along_of("gather", x, index, dim);
  check_count("gather", "out", out.size(), index.size());
  return gather(along, x.data(), index.data(), out.data());
}

auto scattering(const char* name,
                bool (*run)(const Along&, float*, const std::int64_t*, const float*)) {
  return [name, run](const Out& out, const Indices& index, std::size_t dim, const In& source) {
    count_call();
    const Along along = along_of(name, out, index, dim);
    check_count(name, "source", source.size(), index.size());
    return run(along, out.data(), index.data(), source.data());
  };
}

bool rows_taken(const In& table, const Indices& index, const Out& out) {
  count_call();
  if (table.ndim() == 0 || table.size() == 0) {
    throw std::invalid_argument("take_rows: a table has at least one row, and it an element");
  }
  const std::size_t columns = table.size() / table.shape(0);
  check_count("take_rows", "out", out.size(), index.size() * columns);
  return take_rows(table.data(), table.shape(0), columns, index.data(), index.size(), out.data());
}

void add_rows(const Out& out, const Indices& index, const In& rows) {
  count_call();
  const Rows size = rows_of("add_rows", out);
  check_count("add_rows", "rows", rows.size(), index.size() * size.columns);
  for (std::size_t i = 0; i < index.size(); ++i) {
    const std::int64_t row = index.data()[i];
    if (row < 0) {
      continue;  // left out
    }
    if (static_cast<std::size_t>(row) >= size.count) {
      throw std::invalid_argument(message("add_rows: row ", row, " of ", size.count));
    }
    array_path().add(rows.data() + i * size.columns,
                     out.data() + static_cast<std::size_t>(row) * size.columns, size.columns);
  }
}

std::size_t elements(const TensorView& view) {
  std::size_t count = 1;
  for (int dim = 0; dim < view.rank; ++dim) {
    count *= static_cast<std::size_t>(view.size(dim));
  }
  return count;
}

// Of a view; without strides it is row-major.
std::vector<StridedDim> dims_of(const TensorView& view) {
  std::vector<StridedDim> dims(static_cast<std::size_t>(view.rank));
  std::int64_t expected = 1;
  for (int dim = view.rank; dim-- > 0; expected *= view.size(dim)) {
    dims[static_cast<std::size_t>(dim)] = {view.size(dim),
                                           view.strides == nullptr ? expected : view.stride(dim)};
  }
  return dims;
}

void copy_of(nb::handle x, nb::handle out, int threads) {
  count_call();
  constexpr const char* kOp = "strided_copy";
  const TensorArgument read(kOp, "x", x);
  const OutputArgument written(kOp, "out", out);
  const TensorView &from = read.view(), &to = written.view();
  if (to.element != from.element) {
    throw DtypeError(message(kOp, ": out is not of ", element_name(from.element)));
  }
  const std::size_t count = elements(from);
  check_count(kOp, "out", contiguous_elements(kOp, "out", to), count);
  const int at_most = checked_threads(kOp, threads);
  if (count == 0) {
    return;
  }
  const std::vector<StridedDim> dims = dims_of(from);
  const nb::gil_scoped_release release;
  strided_copy(element_bytes(from.element), from.data, dims, to.data, at_most);
}

template <class T>
void sort_of(nb::handle x, nb::handle values, nb::handle places, std::size_t count, bool descending,
             int threads) {
  constexpr const char* kOp = "sort";
  const Contiguous<T, TensorArgument> from(kOp, "x", x);
  const Contiguous<T, OutputArgument> to(kOp, "values", values);
  const Contiguous<std::int64_t, OutputArgument> at(kOp, "places", places);
  check_count(kOp, "values", to.size(), from.size());
  check_count(kOp, "places", at.size(), from.size());
  if (count == 0 || from.size() == 0 || from.size() % count != 0 || count > kSortedMost) {
    throw std::invalid_argument(
        message(kOp, ": ", from.size(), " elements are no rows of ", count));
  }
  const int at_most = checked_threads(kOp, threads);
  const SortedRows shape{from.size() / count, count, descending};
  std::vector<std::uint8_t> has_equal(shape.rows);
  const nb::gil_scoped_release release;
  sort_rows(from.data(), to.data(), at.data(), has_equal.data(), shape, at_most);
}

void sort_any(nb::handle x, nb::handle values, nb::handle places, std::size_t count,
              bool descending, int threads) {
  count_call();
  const Element element = TensorArgument("sort", "x", x).view().element;
  const auto run = element == Element::kInt32   ? sort_of<std::int32_t>
                   : element == Element::kInt64 ? sort_of<std::int64_t>
                                                : sort_of<float>;
  run(x, values, places, count, descending, threads);
}

}  // namespace

void bind_places(nb::module_& module) {
  module.def("gather", &gather_of, "x"_a.noconvert(), "index"_a.noconvert(), "dim"_a,
             "out"_a.noconvert(),
             "Writes the elements of x that index names along dim; in all other dimensions the\n"
             "index is at most as large. Contiguous float32; False where an index is outside.");
  constexpr const char* kScatter =
      "Writes source where index says along dim of out; in all other dimensions it is at\n"
      "most as large. Contiguous float32; False where an index is outside: out is then incomplete.";
  module.def("scatter", scattering("scatter", &scatter), "out"_a.noconvert(), "index"_a.noconvert(),
             "dim"_a, "source"_a.noconvert(), kScatter);
  module.def("scatter_add", scattering("scatter_add", &scatter_add), "out"_a.noconvert(),
             "index"_a.noconvert(), "dim"_a, "source"_a.noconvert(),
             "As scatter, added to what is there.");
  module.def(
      "take_rows", &rows_taken, "table"_a.noconvert(), "index"_a.noconvert(), "out"_a.noconvert(),
      "Writes the rows of table, [rows, ...], that index names; False where one is outside.");
  module.def("add_rows", &add_rows, "out"_a.noconvert(), "index"_a.noconvert(),
             "rows"_a.noconvert(),
             "Adds each of rows to the row of out that index names; a negative one is left out.");
  module.def(
      "sort", &sort_any, "x"_a, "values"_a, "places"_a, "count"_a, "descending"_a, "threads"_a = 1,
      "Writes rows of `count` numbers of float32, int32 or int64 in order, and their places\n"
      "(int64): of equal ones the first is before the others; NaN is above all. Contiguous.");
  module.def("strided_copy", &copy_of, "x"_a, "out"_a, "threads"_a = 1,
             "Writes x, of any dtype and strides, into a contiguous array of its size and dtype.");
}

}  // namespace gt
