// Text of error messages from their values. No error classes and no checks here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace gt {

using Shape = std::vector<std::int64_t>;

inline std::ostream& operator<<(std::ostream& stream, const Shape& shape) {
  stream << '[';
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    stream << (dim == 0 ? "" : ", ") << shape[dim];
  }
  return stream << ']';
}

// Joins the parts. Numbers are written so that they round-trip.
template <class... Parts>
std::string message(const Parts&... parts) {
  std::ostringstream stream;
  stream.precision(17);
  (stream << ... << parts);
  return stream.str();
}

}  // namespace gt
