// A Python tensor as a view: torch's and others' by the DLPack C exchange API, any other array by
// nanobind. No computation here.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>

#include "core/tensor_view.h"

namespace gt {

// Lives in the caller's frame, as the Python object does, which keeps the memory.
class TensorArgument {
 public:
  // Throws DtypeError for what is not an array on the CPU of a known dtype.
  TensorArgument(const char* op, const char* name, nanobind::handle object);

  const TensorView& view() const { return view_; }

 private:
  nanobind::ndarray<nanobind::ro> held_;  // empty where the exchange API gave the view
  TensorView view_;
};

// Any array: without a view where it is not on the CPU or of an unknown dtype.
class AnyTensor {
 public:
  // Throws DtypeError for what is not an array.
  explicit AnyTensor(nanobind::handle object);

  const std::optional<TensorView>& view() const { return view_; }

 private:
  nanobind::ndarray<nanobind::ro> held_;
  std::optional<TensorView> view_;
};

// What is written: as above, and it must not be read-only.
class OutputArgument {
 public:
  OutputArgument(const char* op, const char* name, nanobind::handle object);

  const TensorView& view() const { return view_; }

 private:
  nanobind::ndarray<> held_;
  TensorView view_;
};

}  // namespace gt
