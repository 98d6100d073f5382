// Converts and checks Python's arguments for indexing and copies. No computation here.
#include "bind/places.h"

#include <stdexcept>
#include <vector>

#include "bind/array_argument.h"
#include "core/calls.h"
#include "core/message.h"
#include "cpu/array_path.h"
#include "cpu/places.h"

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
}

}  // namespace gt
