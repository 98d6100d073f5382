// Converts and checks Python's arguments for convolutions and pools of images. No computation here.
#include "bind/convolution.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>

#include "bind/array_argument.h"
#include "core/calls.h"
#include "core/message.h"
#include "cpu/convolution/convolution.h"
#include "cpu/pooling/avg_pool.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

// Kernel, stride, padding, dilation: two numbers each.
using WindowNumbers = std::array<std::int64_t, 8>;

template <class Array>
Shape shape_of(const Array& array) {
  Shape shape;
  for (std::size_t dim = 0; dim < array.ndim(); ++dim) {
    shape.push_back(static_cast<std::int64_t>(array.shape(dim)));
  }
  return shape;
}

template <class Array>
void check_shape(const char* op, const char* name, const Array& array, const Shape& expected) {
  if (shape_of(array) != expected) {
    throw std::invalid_argument(
        message(op, ": ", name, " has the shape ", shape_of(array), ", not ", expected));
  }
}

ImageWindow window_of(const char* op, const WindowNumbers& n) {
  for (std::size_t i = 0; i < n.size(); ++i) {
    const bool may_be_zero = i == 4 || i == 5;
    if (n[i] < (may_be_zero ? 0 : 1) || n[i] > (std::int64_t{1} << 31)) {
      throw std::invalid_argument(message(op, ": a window has no number ", n[i], " at place ", i));
    }
  }
  return {n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7]};
}

std::int64_t places_along(std::int64_t size, std::int64_t kernel, std::int64_t stride,
                          std::int64_t pad, std::int64_t dilation) {
  const std::int64_t span = size + 2 * pad - dilation * (kernel - 1) - 1;
  return span < 0 ? 0 : span / stride + 1;
}

// Checks that shapes fit: images [batch, channels, h, w], weight [filters, channels / groups, kh,
// kw], results [batch, filters, oh, ow].
template <class Images, class Weight, class Results>
Convolution convolution(const char* op, const Images& images, const Weight& weight,
                        const Results& results, const WindowNumbers& numbers, std::int64_t groups,
                        int threads) {
  const Shape image = shape_of(images), filter = shape_of(weight);
  if (image.size() != 4 || filter.size() != 4 || groups < 1 || filter[0] % groups != 0 ||
      image[1] != filter[1] * groups || numbers[0] != filter[2] || numbers[1] != filter[3]) {
    throw std::invalid_argument(message(op, ": images ", image, " and weight ", filter, " in ",
                                        groups, " groups do not fit a window of ", numbers[0],
                                        " x ", numbers[1]));
  }
  const ImageWindow w = window_of(op, numbers);
  const Places places{places_along(image[2], w.kernel_h, w.stride_h, w.pad_h, w.dilation_h),
                      places_along(image[3], w.kernel_w, w.stride_w, w.pad_w, w.dilation_w)};
  check_shape(op, "the result", results, {image[0], filter[0], places.height, places.width});
  return {image[0], groups, {filter[1], image[2], image[3]}, filter[0] / groups,
          w,        places, checked_threads(op, threads)};
}

void conv2d(const Out& out, const In& input, const In& weight, const std::optional<In>& bias,
            const WindowNumbers& window, std::int64_t groups, int threads) {
  count_call();
  const Convolution call = convolution("conv2d", input, weight, out, window, groups, threads);
  if (bias) {
    check_shape("conv2d", "bias", *bias, {call.groups * call.filters});
  }
  const nb::gil_scoped_release release;
  convolve(call, input.data(), weight.data(), bias ? bias->data() : nullptr, out.data());
}

void conv2d_input_grad(const Out& input_grad, const In& grad, const In& weight,
                       const WindowNumbers& window, std::int64_t groups, int threads) {
  count_call();
  const Convolution call =
      convolution("conv2d_input_grad", input_grad, weight, grad, window, groups, threads);
  const nb::gil_scoped_release release;
  convolve_input_grad(call, grad.data(), weight.data(), input_grad.data());
}

void conv2d_weight_grad(const Out& weight_grad, const In& grad, const In& input,
                        const WindowNumbers& window, std::int64_t groups, int threads) {
  count_call();
  const Convolution call =
      convolution("conv2d_weight_grad", input, weight_grad, grad, window, groups, threads);
  const nb::gil_scoped_release release;
  convolve_weight_grad(call, grad.data(), input.data(), weight_grad.data());
}

// Checks that shapes fit: pictures [planes, h, w] and results [planes, oh, ow]. Results may be one
// larger in a dimension, where the last window starts inside the picture.
template <class Pictures, class Results>
MeanPool pool(const char* op, const Pictures& pictures, const Results& results,
              const WindowNumbers& numbers, bool counts_padding, std::int64_t divisor,
              int threads) {
  const Shape picture = shape_of(pictures), result = shape_of(results);
  const ImageWindow w = window_of(op, numbers);
  const auto fits = [&](std::size_t dim, std::int64_t kernel, std::int64_t stride,
                        std::int64_t pad) {
    const std::int64_t begin = (result[dim] - 1) * stride - pad;
    return result[dim] >= 1 && 2 * pad <= kernel && begin < picture[dim];
  };
  if (picture.size() != 3 || result.size() != 3 || picture[0] != result[0] || divisor < 0 ||
      w.dilation_h != 1 || w.dilation_w != 1 || !fits(1, w.kernel_h, w.stride_h, w.pad_h) ||
      !fits(2, w.kernel_w, w.stride_w, w.pad_w)) {
    throw std::invalid_argument(message(op, ": pictures ", picture, " and results ", result,
                                        " do not fit a window of ", w.kernel_h, " x ", w.kernel_w));
  }
  return {picture[0], {1, picture[1], picture[2]}, w, {result[1], result[2]}, counts_padding,
          divisor,    checked_threads(op, threads)};
}

void avg_pool(const Out& out, const In& input, const WindowNumbers& window, bool counts_padding,
              std::int64_t divisor, int threads) {
  count_call();
  const MeanPool call = pool("avg_pool", input, out, window, counts_padding, divisor, threads);
  const nb::gil_scoped_release release;
  mean_pool(call, input.data(), out.data());
}

void avg_pool_backward(const Out& input_grad, const In& grad, const WindowNumbers& window,
                       bool counts_padding, std::int64_t divisor, int threads) {
  count_call();
  const MeanPool call =
      pool("avg_pool_backward", input_grad, grad, window, counts_padding, divisor, threads);
  const nb::gil_scoped_release release;
  mean_pool_backward(call, grad.data(), input_grad.data());
}

// Checks all indices in one vectorised pass without branches: the sign shows an index outside on
// either side.
void check_indices(const char* op, const Indices& indices, std::int64_t pixels,
                   const Shape& picture) {
  const std::int64_t *begin = indices.data(), *end = begin + indices.size();
  std::int64_t signs = 0;
  for (const std::int64_t* index = begin; index != end; ++index) {
    signs |= *index | (pixels - 1 - *index);
  }
  if (signs >= 0) {
    return;
  }
  const std::int64_t wrong = *std::find_if(
      begin, end, [pixels](std::int64_t index) { return index < 0 || index >= pixels; });
  throw std::invalid_argument(message(op, ": index ", wrong, " is in no picture of ", picture,
                                      ": the gradient of a window that has no pixel"));
}

void max_pool_gradient(const Out& input_grad, const In& grad, const Indices& indices, int threads) {
  count_call();
  constexpr const char* kOp = "max_pool_backward";
  const Shape picture = shape_of(input_grad), result = shape_of(grad);
  if (picture.size() != 3 || result.size() != 3 || picture[0] != result[0]) {
    throw std::invalid_argument(
        message(kOp, ": gradients ", result, " are not of pictures ", picture));
  }
  check_shape(kOp, "indices", indices, result);
  const std::int64_t pixels = picture[1] * picture[2];
  check_indices(kOp, indices, pixels, picture);
  const int at_most = checked_threads(kOp, threads);
  const nb::gil_scoped_release release;
  max_pool_backward(picture[0], result[1] * result[2], pixels, at_most, grad.data(), indices.data(),
                    input_grad.data());
}

}  // namespace

void bind_convolution(nb::module_& module) {
  module.def("conv2d", &conv2d, "out"_a.noconvert(), "input"_a.noconvert(), "weight"_a.noconvert(),
             "bias"_a.noconvert().none(), "window"_a, "groups"_a = 1, "threads"_a = 1,
             R"(Writes the convolution of images into out.

Args:
    out: Contiguous array of float32 on the CPU, as all here: [n, filters, oh, ow].
    input: [n, channels, h, w].
    weight: [filters, channels / groups, kh, kw].
    bias: [filters], or None.
    window: Kernel, stride, padding and dilation, for rows and columns each.
    groups: Of channels that only their own filters see.
    threads: Threads to use at most, 1 to 256; changes no bit.

Raises:
    TypeError: An argument is not such an array.
    ValueError: Shapes, windows or threads do not fit.)");
  module.def("conv2d_input_grad", &conv2d_input_grad, "input_grad"_a.noconvert(),
             "grad"_a.noconvert(), "weight"_a.noconvert(), "window"_a, "groups"_a = 1,
             "threads"_a = 1, "Writes the gradient of conv2d's input, of its result's.");
  module.def("conv2d_weight_grad", &conv2d_weight_grad, "weight_grad"_a.noconvert(),
             "grad"_a.noconvert(), "input"_a.noconvert(), "window"_a, "groups"_a = 1,
             "threads"_a = 1, "Writes the gradient of conv2d's weight, of its result's.");
  module.def("avg_pool", &avg_pool, "out"_a.noconvert(), "input"_a.noconvert(), "window"_a,
             "counts_padding"_a, "divisor"_a, "threads"_a = 1,
             R"(Writes the mean of each window of pictures [planes, h, w] into out [planes, oh, ow].

Args:
    counts_padding: A window's zeros beside the picture count too.
    divisor: Of the sums; 0: as many as count.)");
  module.def("avg_pool_backward", &avg_pool_backward, "input_grad"_a.noconvert(),
             "grad"_a.noconvert(), "window"_a, "counts_padding"_a, "divisor"_a, "threads"_a = 1,
             "Spreads each window's gradient evenly over what the window saw.");
  module.def("max_pool_backward", &max_pool_gradient, "input_grad"_a.noconvert(),
             "grad"_a.noconvert(), "indices"_a.noconvert(), "threads"_a = 1,
             "Adds each window's gradient where max_pool found the largest, in its plane.");
}

}  // namespace gt
