// The structures are those of DLPack 1.3's C exchange API (dmlc/dlpack, dlpack.h); a later minor
// version only adds to their end.
#include "bind/tensor_argument.h"

#include <cstdint>
#include <optional>

namespace nb = nanobind;

namespace gt {
namespace {

using Borrow = int (*)(void* object, nb::dlpack::dltensor* out);

struct ExchangeApi {
  std::uint32_t major;
  std::uint32_t minor;
  ExchangeApi* older;
  void* allocate;
  void* take_managed;
  void* give;
  Borrow borrow;  // may be null
  void* work_stream;
};

// numpy has no bfloat16: its uint16 arrays stand for the bits.
std::optional<Element> known_element(nb::dlpack::dtype dtype) {
  struct Row {
    nb::dlpack::dtype_code code;
    std::uint8_t bits;
    Element element;
  };
  constexpr Row kRows[] = {
      {nb::dlpack::dtype_code::Float, 32, Element::kFloat32},
      {nb::dlpack::dtype_code::Float, 64, Element::kFloat64},
      {nb::dlpack::dtype_code::Bfloat, 16, Element::kBfloat16},
      {nb::dlpack::dtype_code::UInt, 16, Element::kBfloat16},
      {nb::dlpack::dtype_code::Float, 16, Element::kFloat16},
      {nb::dlpack::dtype_code::Bool, 8, Element::kBool},
      {nb::dlpack::dtype_code::Int, 32, Element::kInt32},
      {nb::dlpack::dtype_code::Int, 64, Element::kInt64},
      {nb::dlpack::dtype_code::UInt, 32, Element::kUint32},
      {nb::dlpack::dtype_code::UInt, 8, Element::kUint8},
      {nb::dlpack::dtype_code::Int, 8, Element::kInt8},
      {nb::dlpack::dtype_code::Int, 16, Element::kInt16},
  };
  for (const Row& row : kRows) {
    if (dtype.code == static_cast<std::uint8_t>(row.code) && dtype.bits == row.bits &&
        dtype.lanes == 1) {
      return row.element;
    }
  }
  return std::nullopt;
}

// The exchange function of a type, or null. The last types are cached; the interpreter's lock
// guards the cache.
Borrow borrow_of(PyTypeObject* type) {
  struct Known {
    PyTypeObject* type;
    Borrow borrow;
  };
  constexpr std::size_t kKnown = 4;
  static Known known[kKnown] = {};
  static std::size_t next = 0;
  for (const Known& one : known) {
    if (one.type == type) {
      return one.borrow;
    }
  }
  Borrow borrow = nullptr;
  const nb::object capsule =
      nb::getattr(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__", nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api") != 0) {
    const auto* api =
        static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    while (api != nullptr && api->major != 1) {
      api = api->older;
    }
    borrow = api == nullptr ? nullptr : api->borrow;
  }
  Py_INCREF(type);  // keeps the type alive, so that its address stays unique
  Py_XDECREF(known[next].type);
  known[next] = {type, borrow};
  next = (next + 1) % kKnown;
  return borrow;
}

struct Source {
  void* data;
  nb::dlpack::dtype dtype;
  std::int32_t device;
  int rank;
  const std::int64_t* shape;
  const std::int64_t* strides;

  bool is_on_cpu() const { return device == nb::device::cpu::value; }
  TensorView view(Element element) const { return {data, element, rank, shape, strides}; }
};

template <class Array>
Source source_of(const char* op, const char* name, nb::handle object, Array& held) {
  if (const Borrow borrow = borrow_of(reinterpret_cast<PyTypeObject*>(object.type().ptr()))) {
    nb::dlpack::dltensor tensor;
    if (borrow(object.ptr(), &tensor) != 0) {
      nb::raise_python_error();
    }
    return {static_cast<char*>(tensor.data) + tensor.byte_offset,
            tensor.dtype,
            tensor.device.device_type,
            tensor.ndim,
            tensor.shape,
            tensor.strides};
  }
  if (!nb::try_cast(object, held, false)) {
    throw DtypeError(message(op, ": ", name, " is a ", nb::type_name(object.type()).c_str(),
                             ", not an array that can be used without a copy"));
  }
  return {const_cast<void*>(static_cast<const void*>(held.data())),
          held.dtype(),
          held.device_type(),
          static_cast<int>(held.ndim()),
          held.shape_ptr(),
          held.stride_ptr()};
}

TensorView checked_view(const char* op, const char* name, const Source& source) {
  if (!source.is_on_cpu()) {
    throw DtypeError(message(op, ": ", name, " is on DLPack device type ", source.device,
                             ", not on the CPU (", nb::device::cpu::value, ")"));
  }
  const std::optional<Element> element = known_element(source.dtype);
  if (!element) {
    throw DtypeError(message(op, ": ", name, " has the unknown dtype of DLPack code ",
                             int{source.dtype.code}, ", ", int{source.dtype.bits}, " bits, ",
                             source.dtype.lanes, " lanes"));
  }
  return source.view(*element);
}

std::optional<TensorView> view_if_known(const Source& source) {
  const std::optional<Element> element = known_element(source.dtype);
  return source.is_on_cpu() && element ? std::optional(source.view(*element)) : std::nullopt;
}

}  // namespace

AnyTensor::AnyTensor(nb::handle object) {
  try {
    view_ = view_if_known(source_of("run", "an argument", object, held_));
  } catch (const nb::python_error&) {
    // A tensor without memory to lend, such as one on torch's device meta.
  }
}

TensorArgument::TensorArgument(const char* op, const char* name, nb::handle object)
    : view_(checked_view(op, name, source_of(op, name, object, held_))) {}

OutputArgument::OutputArgument(const char* op, const char* name, nb::handle object)
    : view_(checked_view(op, name, source_of(op, name, object, held_))) {}

}  // namespace gt
