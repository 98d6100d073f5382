#include "objects.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_variable.h>

namespace gt {

Front front;

namespace {

// Number of PyTorch's dtype among GT's; kDtypes for none.
size_t dtype_number(at::ScalarType dtype) {
  for (size_t number = 0; number < kDtypes; ++number) {
    if (front.dtypes[number] == dtype) return number;
  }
  return kDtypes;
}

// A number that PyTorch wrapped as a tensor without dimensions, as Python's.
PyObject* wrapped_number(const at::Tensor& tensor) {
  const void* data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return PyFloat_FromDouble(*static_cast<const double*>(data));
    case at::kLong:
      return PyLong_FromLongLong(*static_cast<const int64_t*>(data));
    case at::kBool:
      return PyBool_FromLong(*static_cast<const bool*>(data) ? 1 : 0);
    default:
      return nullptr;
  }
}

PyObject* tensor_argument(const at::Tensor& tensor) {
  if (!tensor.defined()) Py_RETURN_NONE;
  const auto* impl = tensor.unsafeGetTensorImpl();
  if (impl->is_wrapped_number() && tensor.is_cpu()) return wrapped_number(tensor);
  if (!impl->is_python_dispatch()) return nullptr;
  const Owned object(THPVariable_Wrap(tensor));
  if (object.get() == nullptr || Py_TYPE(object.get()) != front.tensor_type) {
    PyErr_Clear();
    return nullptr;
  }
  PyObject* value = PyObject_GetAttr(object.get(), front.value_name);
  if (value == nullptr) PyErr_Clear();
  return value;
}

// A list whose elements `make` converts; null where it converts one to null.
template <typename List, typename Make>
PyObject* list_argument(const List& entries, Make make) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(entries.size()));
  Py_ssize_t place = 0;
  for (const auto& entry : entries) {
    PyObject* object = list == nullptr ? nullptr : make(entry);
    if (object == nullptr) {
      Py_XDECREF(list);
      return nullptr;
    }
    PyList_SET_ITEM(list, place++, object);
  }
  return list;
}

PyObject* dtype_argument(const at::IValue& value) {
  if (!value.isInt()) return nullptr;
  const size_t number = dtype_number(static_cast<at::ScalarType>(value.toInt()));
  if (number == kDtypes) return nullptr;
  return Py_NewRef(front.dtype_objects[number]);
}

PyObject* value_argument(const at::IValue& value) {
  if (value.isTensor()) return tensor_argument(value.toTensor());
  if (value.isNone()) Py_RETURN_NONE;
  if (value.isInt()) return PyLong_FromLongLong(value.toInt());
  if (value.isDouble()) return PyFloat_FromDouble(value.toDouble());
  if (value.isBool()) return PyBool_FromLong(value.toBool() ? 1 : 0);
  if (value.isIntList()) return list_argument(value.toIntVector(), PyLong_FromLongLong);
  if (value.isDoubleList()) return list_argument(value.toDoubleVector(), PyFloat_FromDouble);
  if (value.isString()) return PyUnicode_FromString(value.toStringRef().c_str());
  if (value.isList()) {  // of tensors, tensors or None, or booleans
    return list_argument(value.toListRef(), [](const at::IValue& x) { return value_argument(x); });
  }
  return nullptr;
}

at::IValue tensors_of(PyObject* object) {
  const Owned entries(PySequence_Fast(object, "a list of tensors was expected"));
  if (entries.get() == nullptr) throw_error();
  c10::List<at::Tensor> tensors;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(entries.get());
  tensors.reserve(static_cast<size_t>(count));
  for (Py_ssize_t place = 0; place < count; ++place) {
    tensors.push_back(tensor_of(PySequence_Fast_GET_ITEM(entries.get(), place)));
  }
  return tensors;
}

int64_t integer_of(PyObject* object) {
  const int64_t number = PyLong_AsLongLong(object);
  if (number == -1 && PyErr_Occurred() != nullptr) throw_error();
  return number;
}

double real_of(PyObject* object) {
  const double number = PyFloat_AsDouble(object);
  if (number == -1.0 && PyErr_Occurred() != nullptr) throw_error();
  return number;
}

// The tensor that `_make_wrapper_subclass` makes: its memory has a size and no address.
at::Tensor wrapper(const TensorMetadata& metadata) {
  const at::IntArrayRef sizes(metadata.sizes.data(), metadata.dimensions);
  const at::IntArrayRef strides(metadata.strides.data(), metadata.dimensions);
  const auto dtype = c10::scalarTypeToTypeMeta(front.dtypes[metadata.dtype]);
  const auto bytes = at::detail::computeStorageNbytes(sizes, strides, dtype.itemsize(),
                                                      static_cast<size_t>(metadata.offset));
  c10::Storage storage(c10::Storage::use_byte_size_t{}, bytes,
                       at::DataPtr{nullptr, at::Device(at::kPrivateUse1, 0)},
                       c10::GetAllocator(c10::kMeta), true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype);
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, strides, metadata.offset);
  impl->set_python_dispatch(true);
  return tensor;
}

}  // namespace

bool is_of_device(const at::Tensor& tensor) {
  if (!tensor.unsafeGetTensorImpl()->is_python_dispatch()) return false;
  const Owned object(THPVariable_Wrap(tensor));
  if (object.get() == nullptr) throw_error();
  return Py_TYPE(object.get()) == front.tensor_type;
}

void append_tensors(const at::IValue& value, PyObject* list) {
  if (value.isTensor()) {
    const Owned object(THPVariable_Wrap(value.toTensor()));
    if (object.get() == nullptr || PyList_Append(list, object.get()) != 0) throw_error();
  } else if (value.isList()) {
    for (const auto& entry : value.toListRef()) append_tensors(entry, list);
  }
}

PyObject* argument_of(const at::IValue& value, Kind kind) {
  if (kind == Kind::kDtype) {
    if (value.isNone()) Py_RETURN_NONE;
    return dtype_argument(value);
  }
  return value_argument(value);
}

at::Tensor tensor_of(PyObject* value) {
  if (!PyObject_TypeCheck(value, front.value_type)) {
    if (value == Py_None) return {};
    if (THPVariable_Check(value)) return THPVariable_Unpack(value);
    PyErr_Format(PyExc_TypeError, "a tensor was expected, not %R", value);
    throw_error();
  }
  TensorMetadata metadata{};
  front.write_metadata(value, &metadata);
  auto tensor = wrapper(metadata);
  const Owned object(THPVariable_Wrap(tensor, front.tensor_type));
  if (object.get() == nullptr) throw_error();
  if (PyObject_SetAttr(object.get(), front.value_name, value) != 0) throw_error();
  return tensor;
}

at::IValue result_of(PyObject* object, const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return tensor_of(object);
    case c10::TypeKind::ListType:
      return tensors_of(object);
    case c10::TypeKind::BoolType:
      return at::IValue(integer_of(object) != 0);
    case c10::TypeKind::FloatType:
      return at::IValue(real_of(object));
    default:  // an integer, plain or symbolic: a schema with another type is refused
              // (operators.cpp)
      return at::IValue(integer_of(object));
  }
}

void throw_error() {
  if (torch::autograd::get_current_graph_task_id() == -1) {
    python_error error;
    error.persist();
    throw error;
  }
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Owned kept_type(type), kept_value(value), kept_traceback(traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  const Owned done(PyObject_CallOneArg(front.keep_error, value));
  PyErr_Clear();
  throw std::runtime_error("an operator of the device mux failed in a backward pass");
}

}  // namespace gt
