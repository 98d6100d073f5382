// Python's objects and PyTorch's values: GT's tensors, PyTorch's tensors of the device, and
// numbers.
#pragma once
// Python's headers come first, as CPython asks.
#include <ATen/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/python_headers.h>

#include <array>
#include <cstdint>

namespace gt {

// Limit of GT's dimensions (crates/protocol/src/value/meta.rs) and number of its dtypes.
constexpr size_t kDimensionsMax = 8;
constexpr size_t kDtypes = 12;

// A tensor's metadata, as crates/python/src/client/surface/metadata.rs writes it.
struct TensorMetadata {
  uint32_t dtype;
  uint32_t dimensions;
  int64_t offset;
  std::array<int64_t, kDimensionsMax> sizes;
  std::array<int64_t, kDimensionsMax> strides;
};

// The front end's objects, set once by `gt_front_install` and kept for the life of the process.
struct Front {
  PyTypeObject* tensor_type = nullptr;  // gt.torch.MuxTensor
  PyTypeObject* value_type = nullptr;   // gt.Tensor
  PyObject* value_name = nullptr;       // "value", a MuxTensor's attribute
  PyObject* scopes = nullptr;           // the dict of existing scopes
  PyObject* enter_thread = nullptr;     // called once in each thread
  PyObject* keep_error = nullptr;       // called with an operator's error in a backward pass
  PyObject* look = nullptr;             // called before an operator if there are scopes
  void (*write_metadata)(PyObject*, TensorMetadata*) = nullptr;
  // By GT's number of a dtype: PyTorch's, and GT's object.
  std::array<at::ScalarType, kDtypes> dtypes{};
  std::array<PyObject*, kDtypes> dtype_objects{};
};
extern Front front;

// A reference that is released at the end of its scope.
class Owned {
 public:
  explicit Owned(PyObject* object = nullptr) : object_(object) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }

 private:
  PyObject* object_;
};

// Kinds of arguments that the fast path passes on.
enum class Kind : uint8_t {
  kValue,   // a tensor, a number, a string or a list of them
  kDtype,   // a dtype, which PyTorch holds as an integer
  kDevice,  // not passed on; the fast path runs on `mux` only
  kLayout,  // not passed on; strided only
  kPlace,   // not passed on: a worker decides
};

// Appends PyTorch's tensors in an argument to a Python list. Throws a Python error.
void append_tensors(const at::IValue& value, PyObject* list);

// True for a tensor of the class of the device's.
bool is_of_device(const at::Tensor& tensor);

// The argument for a GT function, a new reference; null without an error where only the path in
// Python takes it.
PyObject* argument_of(const at::IValue& value, Kind kind);

// PyTorch's tensor around a GT tensor. Throws a Python error.
at::Tensor tensor_of(PyObject* value);

// The result of a GT function as a value of the schema's type. Throws a Python error.
at::IValue result_of(PyObject* object, const c10::Type& type);

// Throws the Python error that is set, or keeps it for the caller of the backward pass that runs.
[[noreturn]] void throw_error();

}  // namespace gt
