// A Python tensor as a view: torch's and others' by the DLPack C exchange API, any other array by
// nanobind. No computation here.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>

#include "core/tensor_view.h"

namespace gt {

// Lives in the caller's frame, like the Python object, which owns the memory.
class TensorArgument {
 public:
  // Throws DtypeError unless the object is a CPU array of a known dtype.
  TensorArgument(const char* op, const char* name, nanobind::handle object);

  const TensorView& view() const { return view_; }

 private:
  nanobind::ndarray<nanobind::ro> held_;  // empty where the exchange API gave the view
  TensorView view_;
};

// Any array; has no view where it is not on the CPU or has an unknown dtype.
class AnyTensor {
 public:
  // Throws DtypeError where the object is no array.
  explicit AnyTensor(nanobind::handle object);

  const std::optional<TensorView>& view() const { return view_; }

 private:
  nanobind::ndarray<nanobind::ro> held_;
  std::optional<TensorView> view_;
};

// A TensorArgument that is written to, and so must not be read-only.
class OutputArgument {
 public:
  OutputArgument(const char* op, const char* name, nanobind::handle object);

  const TensorView& view() const { return view_; }

 private:
  nanobind::ndarray<> held_;
  TensorView view_;
};

}  // namespace gt
