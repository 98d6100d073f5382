// The whole fast path as one translation unit, and its C interface: PyTorch's headers are read
// once, which takes nearly all of the compile time. Python holds the interpreter's lock in each
// call.
#include <torch/headeronly/version.h>

#include "guard.cpp"
#include "objects.cpp"
#include "operators.cpp"

extern "C" {

const char* gt_torch_version() { return TORCH_VERSION; }

// Sets the front end's objects: its classes, the dict of scopes, functions to call, the address of
// the function that writes a GT tensor's metadata, and PyTorch's and GT's dtypes by GT's numbers.
int gt_front_install(PyObject* tensor_type, PyObject* value_type, PyObject* scopes,
                     PyObject* enter_thread, PyObject* keep_error, PyObject* look,
                     uintptr_t write_metadata, PyObject* dtypes, PyObject* value_dtypes) {
  auto& front = gt::front;
  if (PyTuple_GET_SIZE(dtypes) != gt::kDtypes || PyTuple_GET_SIZE(value_dtypes) != gt::kDtypes) {
    return -1;
  }
  for (size_t number = 0; number < gt::kDtypes; ++number) {
    const auto place = static_cast<Py_ssize_t>(number);
    PyObject* dtype = PyTuple_GET_ITEM(dtypes, place);
    front.dtypes[number] = reinterpret_cast<THPDtype*>(dtype)->scalar_type;
    front.dtype_objects[number] = Py_NewRef(PyTuple_GET_ITEM(value_dtypes, place));
  }
  front.tensor_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(tensor_type));
  front.value_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(value_type));
  front.value_name = PyUnicode_InternFromString("value");
  front.scopes = Py_NewRef(scopes);
  front.enter_thread = Py_NewRef(enter_thread);
  front.keep_error = Py_NewRef(keep_error);
  front.look = Py_NewRef(look);
  front.write_metadata = reinterpret_cast<void (*)(PyObject*, gt::TensorMetadata*)>(write_metadata);
  gt::install_guard();
  return 0;
}

// Makes a GT function run an operator; 0 if the operator is not for the fast path.
int gt_front_operator(const char* name, const char* overload, int use, PyObject* function) {
  return gt::install(name, overload, static_cast<gt::Use>(use), function) ? 1 : 0;
}

// Makes autograd record an operator whole.
int gt_front_recorded(const char* name, const char* overload) {
  return gt::install_recorded(name, overload) ? 1 : 0;
}

// Makes a GT function run a gradient's operator, unless autograd records it.
int gt_front_gradient(const char* name, const char* overload, PyObject* function) {
  return gt::install_gradient(name, overload, function) ? 1 : 0;
}

// Lets operators run here, or leaves all to Python.
void gt_front_switch(int is_on) { gt::is_on.store(is_on != 0); }

// Number of operators that ran here.
uint64_t gt_front_calls() { return gt::calls.load(std::memory_order_relaxed); }
}
