// Python's tensors as handles, and back. The caller holds the interpreter's lock.
#include <ATen/Tensor.h>
#include <torch/headeronly/version.h>

#include "frame.h"

// torch 2.14 is the first version with stable functions for this.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>

namespace {

void* impl_of_object(void* object) {
  AtenTensorHandle handle = nullptr;
  if (torch_tensor_from_pyobject(object, &handle) != 0) return nullptr;
  auto* owned = reinterpret_cast<at::Tensor*>(handle);
  void* impl = owned->unsafeReleaseTensorImpl();
  delete owned;
  return impl;
}

void* object_of(at::Tensor& tensor) {
  void* object = nullptr;
  auto* handle = reinterpret_cast<AtenTensorHandle>(&tensor);
  return torch_tensor_to_pyobject(handle, nullptr, &object) == 0 ? object : nullptr;
}

}  // namespace
#else
// CPython's PyObject, and the functions needed here, without Python's headers, which a machine with
// torch may lack. The process has loaded both libraries.
struct _object;  // NOLINT: the name is CPython's
_object* THPVariable_Wrap(const at::TensorBase& tensor);
extern "C" {
_object* PyObject_GetAttrString(_object*, const char*);
void* PyLong_AsVoidPtr(_object*);
void PyErr_Clear();
void Py_DecRef(_object*);
}

namespace {

// A tensor's attribute `_cdata` is the address of its TensorImpl.
void* impl_of_object(void* object) {
  _object* number = PyObject_GetAttrString(static_cast<_object*>(object), "_cdata");
  if (number == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  auto* impl = static_cast<c10::TensorImpl*>(PyLong_AsVoidPtr(number));
  Py_DecRef(number);
  return gt::TensorPointer::unsafe_reclaim_from_nonowning(impl).release();
}

void* object_of(at::Tensor& tensor) { return THPVariable_Wrap(tensor); }

}  // namespace
#endif

extern "C" {

// The handle of a Python tensor, owned by the caller; null for another object.
void* gt_from_python(void* object) { return impl_of_object(object); }

// The Python tensor of a handle, a new reference; null with an error.
void* gt_to_python(void* impl) {
  gt::Borrowed tensor(static_cast<c10::TensorImpl*>(impl));
  return object_of(*tensor);
}
}
