// CUDA kernels for Python: addresses and sizes in, a launch queued. No computation here.
// gt/worker/cuda/kernels.py says which tensors are taken.
#include "bind/cuda.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <utility>

#include "bind/cuda_attention.h"
#include "bind/cuda_collectives.h"
#include "bind/cuda_rows.h"
#include "cuda/host/products.h"
#include "cuda/host/worker_calls.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {

Element cuda_element(const std::string& name) {
  for (const Element element :
       {Element::kBool, Element::kInt32, Element::kInt64, Element::kUint32, Element::kBfloat16,
        Element::kFloat16, Element::kFloat32, Element::kFloat64}) {
    if (name == element_name(element)) {
      return element;
    }
  }
  throw DtypeError(message("no CUDA kernel knows the dtype ", name));
}

namespace {

using cuda::Address;
using cuda::Launcher;
using cuda::RandomBox;

using Words = std::pair<std::uint64_t, std::uint64_t>;
using Operand = std::tuple<Address, Address, Address, Address, std::int64_t>;

RandomBox box_of(std::uint64_t seed, std::uint64_t draw, Shape shape, Shape whole, Shape start,
                 std::uintptr_t stream) {
  return {{seed, draw}, std::move(shape), std::move(whole), std::move(start), stream};
}

// Makes the Python method of `fill`: out, dtype, shape, seed, draw, the distribution's own values,
// global_shape, start, stream.
template <class... Values>
auto filler(void (*fill)(Launcher&, Address, Element, const RandomBox&, Values...)) {
  return [fill](Launcher& launcher, Address out, const std::string& dtype, Shape shape,
                std::uint64_t seed, std::uint64_t draw, Values... values, Shape whole, Shape start,
                std::uintptr_t stream) {
    const RandomBox box =
        box_of(seed, draw, std::move(shape), std::move(whole), std::move(start), stream);
    fill(launcher, out, cuda_element(dtype), box, values...);
  };
}

template <void (*fill)(Launcher&, Address, const RandomBox&, double)>
void filled_bool(Launcher& launcher, Address out, Element element, const RandomBox& box, double p) {
  if (element != Element::kBool) {
    throw DtypeError(message("CUDA's masks are bool, not ", element_name(element)));
  }
  fill(launcher, out, box, p);
}

void bind_random_methods(nb::class_<Launcher>& cuda) {
  cuda.def("uniform", filler(&cuda::fill_uniform), "out"_a, "dtype"_a, "shape"_a, "seed"_a,
           "draw"_a, "low"_a, "high"_a, "global_shape"_a, "start"_a, "stream"_a,
           "Fills out as gt._kernels.uniform does, to the same bits.");
  cuda.def("normal", filler(&cuda::fill_normal), "out"_a, "dtype"_a, "shape"_a, "seed"_a, "draw"_a,
           "mean"_a, "std"_a, "global_shape"_a, "start"_a, "stream"_a,
           "Fills out as gt._kernels.normal does, to the same bits.");
  cuda.def("integers", filler(&cuda::fill_integers), "out"_a, "dtype"_a, "shape"_a, "seed"_a,
           "draw"_a, "low"_a, "high"_a, "global_shape"_a, "start"_a, "stream"_a,
           "Fills out as gt._kernels.integers does, to the same bits.");
  cuda.def("bernoulli", filler(&filled_bool<&cuda::fill_bernoulli>), "out"_a, "dtype"_a, "shape"_a,
           "seed"_a, "draw"_a, "p"_a, "global_shape"_a, "start"_a, "stream"_a,
           "Fills out, of bool, as gt._kernels.bernoulli does.");
  cuda.def("dropout_mask", filler(&filled_bool<&cuda::fill_dropout_mask>), "out"_a, "dtype"_a,
           "shape"_a, "seed"_a, "draw"_a, "p"_a, "global_shape"_a, "start"_a, "stream"_a,
           "Fills out, of bool, as gt._kernels.dropout_mask does.");
  cuda.def(
      "dropout",
      [](Launcher& launcher, Address x, Address out, Address keep, Shape shape, std::uint64_t seed,
         std::uint64_t draw, double p, float scale, Shape whole, Shape start,
         std::uintptr_t stream) {
        const RandomBox box =
            box_of(seed, draw, std::move(shape), std::move(whole), std::move(start), stream);
        cuda::dropout(launcher, x, out, keep, box, p, scale);
      },
      "x"_a, "out"_a, "keep"_a, "shape"_a, "seed"_a, "draw"_a, "p"_a, "scale"_a, "global_shape"_a,
      "start"_a, "stream"_a, "out = x * mask * scale of float32, and the mask into keep.");
}

void bind_adamw_method(nb::class_<Launcher>& cuda) {
  cuda.def_static("adamw_table_bytes", &cuda::adamw_table_bytes, "tensors"_a,
                  "Bytes of device memory that adamw needs for its table.");
  cuda.def(
      "adamw",
      [](Launcher& launcher, const std::vector<Operand>& tensors, Address table,
         std::int64_t table_bytes, float lr, float beta1, float beta2, float eps,
         float weight_decay, float correction1, float correction2, std::uintptr_t stream) {
        std::vector<cuda::AdamwOperand> operands;
        operands.reserve(tensors.size());
        for (const auto& [parameter, gradient, mean, square, elements] : tensors) {
          operands.push_back({parameter, gradient, mean, square, elements});
        }
        const AdamwStep step{lr, beta1, beta2, eps, weight_decay, correction1, correction2};
        cuda::adamw(launcher, operands, table, table_bytes, step, stream);
      },
      "tensors"_a, "table"_a, "table_bytes"_a, "lr"_a, "beta1"_a, "beta2"_a, "eps"_a,
      "weight_decay"_a, "correction1"_a, "correction2"_a, "stream"_a,
      R"(One step of AdamW for float32 tensors, in one launch.

Args:
    tensors: Addresses of parameter, gradient, mean and mean of squares, and their elements.
    correction1: 1 - beta1 to the power of the step; correction2 likewise.)");
}

using Matrix = std::tuple<Address, std::int64_t, std::int64_t>;

GemmOperand matrix_of(const Matrix& given) {
  const auto& [address, step, batch_step] = given;
  return {reinterpret_cast<const std::uint16_t*>(address), step, batch_step};
}

cuda::GemmLayout layout_of(const std::string& name) {
  if (name == "nn" || name == "nt" || name == "tn") {
    return name == "nn"   ? cuda::GemmLayout::kNN
           : name == "nt" ? cuda::GemmLayout::kNT
                          : cuda::GemmLayout::kTN;
  }
  throw std::invalid_argument(message("gemm: layout ", name, " is none of nn, nt, tn"));
}

cuda::GemmPath path_of(const std::string& name) {
  constexpr std::pair<const char*, cuda::GemmPath> kAll[] = {{"auto", cuda::GemmPath::kAuto},
                                                             {"sm_80", cuda::GemmPath::kSm80},
                                                             {"sm_90a", cuda::GemmPath::kSm90a}};
  for (const auto& [known, path] : kAll) {
    if (name == known) {
      return path;
    }
  }
  throw std::invalid_argument(message("gemm: path ", name, " is none of auto, sm_80, sm_90a"));
}

Activation activation_of(const std::string& name) {
  constexpr std::pair<const char*, Activation> kAll[] = {{"none", Activation::kNone},
                                                         {"relu", Activation::kRelu},
                                                         {"gelu", Activation::kGelu},
                                                         {"silu", Activation::kSilu}};
  for (const auto& [known, activation] : kAll) {
    if (name == known) {
      return activation;
    }
  }
  throw std::invalid_argument(
      message("gemm: activation ", name, " is none of none, relu, gelu, silu"));
}

using Product = std::tuple<Matrix, Matrix, Address, Matrix, Address, bool, std::int64_t,
                           std::int64_t, std::int64_t>;

GemmCall call_of(const Product& product, float scale, const std::string& activation) {
  const auto& [a, b, bias, residual, out, is_float_out, rows, columns, depth] = product;
  return {matrix_of(a),
          matrix_of(b),
          reinterpret_cast<const std::uint16_t*>(bias),
          matrix_of(residual),
          reinterpret_cast<void*>(out),
          is_float_out,
          rows,
          columns,
          depth,
          scale,
          activation_of(activation)};
}

void bind_gemm_methods(nb::class_<Launcher>& cuda) {
  cuda.def(
      "gemm",
      [](Launcher& launcher, const std::string& layout, const std::string& dtype,
         const Product& product, std::int64_t batches, float scale, const std::string& activation,
         std::uintptr_t stream, const std::string& path) {
        cuda::gemm(launcher, cuda_element(dtype), layout_of(layout),
                   call_of(product, scale, activation), batches, path_of(path), stream);
      },
      "layout"_a, "dtype"_a, "product"_a, "batches"_a, "scale"_a, "activation"_a, "stream"_a,
      "path"_a = "auto",
      R"(out = activation(scale * a @ b + bias) + residual, in bfloat16 or float16.

Args:
    layout: How a and b are stored: nn as they are multiplied; nt, b as [columns, depth]; tn, a as
        [depth, rows].
    product: a, b, bias, residual, out, whether out is of float32, rows, columns, depth. a, b and
        residual are an address with the elements from row to row and from batch to batch; bias and
        out, of [batches, rows, columns], are addresses. That of bias and of residual may be 0.
    activation: none, relu, gelu or silu.
    path: auto takes the kernel for what the device is; sm_80 and sm_90a name one, for tests and
        timings.)");
  cuda.def_static("gemm_table_bytes", &cuda::gemm_table_bytes, "products"_a,
                  "Bytes of device memory that grouped_gemm needs for its table.");
  cuda.def(
      "grouped_gemm",
      [](Launcher& launcher, const std::string& layout, const std::string& dtype,
         const std::vector<Product>& products, Address table, std::int64_t table_bytes, float scale,
         const std::string& activation, std::uintptr_t stream) {
        std::vector<GemmCall> calls;
        calls.reserve(products.size());
        for (const Product& product : products) {
          calls.push_back(call_of(product, scale, activation));
        }
        cuda::grouped_gemm(launcher, cuda_element(dtype), layout_of(layout), calls, table,
                           table_bytes, stream);
      },
      "layout"_a, "dtype"_a, "products"_a, "table"_a, "table_bytes"_a, "scale"_a, "activation"_a,
      "stream"_a, "Products as gemm makes them, of one batch each, in one launch.");
}

}  // namespace

void bind_cuda(nb::module_& module) {
  nb::exception<cuda::CudaError>(module, "CudaError", PyExc_RuntimeError);
  module.def(
      "cuda_sources",
      [] {
        nb::list names;
        for (const auto& image : cuda::embedded_images()) {
          names.append(image.first);
        }
        return names;
      },
      "Sources of csrc/cuda whose fat binaries this build holds; none without nvcc.");
  auto cuda = nb::class_<Launcher>(module, "Cuda", R"(CUDA kernels, launched by the driver.

Operands are addresses of contiguous memory of one device, and `stream` is a stream's number:
`torch.cuda.current_stream().cuda_stream`. A launch is queued; nothing waits. Every method raises
CudaError, a RuntimeError, with the driver's name and text, and ValueError for sizes.)");
  cuda.def(
      "__init__",
      [](Launcher* self, const std::string& library,
         const std::optional<std::map<std::string, nb::bytes>>& images) {
        cuda::Images given;
        if (images) {
          for (const auto& [name, bytes] : *images) {
            given.emplace(name, std::string(bytes.c_str(), bytes.size()));
          }
        }
        new (self) Launcher(library, images ? std::move(given) : cuda::embedded_images());
      },
      "library"_a = "libcuda.so.1", "images"_a = nb::none(),
      R"(Opens the driver.

Args:
    library: The driver's library.
    images: Fat binaries by source, in place of those of this build; for tests.

Raises:
    CudaError: There is no such library, it lacks a function, or finds no device.)");
  bind_random_methods(cuda);
  bind_cuda_collectives(cuda);
  bind_cuda_rows(cuda);
  bind_adamw_method(cuda);
  bind_gemm_methods(cuda);
  bind_cuda_attention(cuda);
}

}  // namespace gt
