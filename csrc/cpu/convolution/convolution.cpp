#include "cpu/convolution/convolution.h"

#include <algorithm>
#include <array>

#include "core/pool.h"
#include "core/scratch.h"
#include "core/tensor_view.h"
#include "cpu/matmul/matmul.h"

namespace gt {
namespace {

// Numbers in the columns of one block, which stay in the second-level cache while they are
// multiplied.
constexpr std::int64_t kBlockNumbers = 96 * 1024;
// Minimum number of places in a block: with fewer, copying would cost more than multiplying.
constexpr std::int64_t kBlockPlacesMin = 96;

// A matrix operand of a product, with its strides.
class Matrix {
 public:
  Matrix(const float* data, std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
         std::int64_t column_stride = 1)
      : data_(const_cast<float*>(data)),
        shape_{rows, columns},
        strides_{row_stride, column_stride} {}

  TensorView view() const { return {data_, Element::kFloat32, 2, shape_.data(), strides_.data()}; }

 private:
  float* data_;
  std::array<std::int64_t, 2> shape_, strides_;
};

// out = a @ b, or out += a @ b where is_added.
void multiply(const Matrix& out, const Matrix& a, const Matrix& b, int threads,
              bool is_added = false) {
  const TensorView sum = out.view();
  MatmulCall call{sum, a.view(), b.view()};
  call.residual = is_added ? &sum : nullptr;
  call.threads = threads;
  matmul(call);
}

// Sizes that all parts of a call share.
struct Sizes {
  std::int64_t depth;       // numbers that a window covers
  std::int64_t pixels;      // pixels of one group's part of an image
  std::int64_t places;      // number of windows
  std::int64_t block_rows;  // rows of places in a block
  bool is_plain;            // windows are single pixels: the image is its own columns

  explicit Sizes(const Convolution& call) {
    const ImageWindow& w = call.window;
    depth = call.size.channels * w.kernel_h * w.kernel_w;
    pixels = call.size.channels * call.size.height * call.size.width;
    places = call.places.height * call.places.width;
    const std::int64_t wanted =
        std::max(kBlockNumbers / std::max<std::int64_t>(depth, 1), kBlockPlacesMin);
    const std::int64_t width = std::max<std::int64_t>(call.places.width, 1);
    block_rows =
        std::clamp<std::int64_t>(wanted / width, 1, std::max<std::int64_t>(call.places.height, 1));
    is_plain = w.kernel_h == 1 && w.kernel_w == 1 && w.stride_h == 1 && w.stride_w == 1 &&
               w.pad_h == 0 && w.pad_w == 0;
  }

  std::int64_t blocks(const Convolution& call) const {
    return (call.places.height + block_rows - 1) / block_rows;
  }

  PlaceRows rows(const Convolution& call, std::int64_t block) const {
    const std::int64_t first = block * block_rows;
    return {first, std::min(block_rows, call.places.height - first)};
  }
};

Scratch& scratch() {
  static thread_local Scratch memory;
  return memory;
}

// Unfolded windows of some rows: [depth, rows * width], in the image itself or in working memory.
Matrix columns_of(const Convolution& call, const Sizes& sizes, const float* image, PlaceRows rows) {
  const std::int64_t count = rows.count * call.places.width;
  if (sizes.is_plain) {
    return {image + rows.first * call.places.width, sizes.depth, count, sizes.places};
  }
  float* columns = scratch().numbers<float>(sizes.depth * count);
  unfold_image(image, call.size, call.window, call.places, rows, columns);
  return {columns, sizes.depth, count, count};
}

}  // namespace

void convolve(const Convolution& call, const float* input, const float* weight, const float* bias,
              float* out) {
  const Sizes sizes(call);
  const std::int64_t blocks = sizes.blocks(call);
  run_tasks(call.batch * call.groups * blocks, call.threads, [&](std::int64_t task) {
    const std::int64_t part = task / blocks, group = part % call.groups;
    const PlaceRows rows = sizes.rows(call, task % blocks);
    const std::int64_t first = rows.first * call.places.width;
    const std::int64_t count = rows.count * call.places.width;
    float* to = out + part * call.filters * sizes.places + first;
    const Matrix filters(weight + group * call.filters * sizes.depth, call.filters, sizes.depth,
                         sizes.depth);
    multiply({to, call.filters, count, sizes.places}, filters,
             columns_of(call, sizes, input + part * sizes.pixels, rows), 1);
    for (std::int64_t filter = 0; bias != nullptr && filter < call.filters; ++filter) {
      const float level = bias[group * call.filters + filter];
      float* row = to + filter * sizes.places;
      for (std::int64_t place = 0; place < count; ++place) {
        row[place] += level;
      }
    }
  });
}

void convolve_input_grad(const Convolution& call, const float* grad, const float* weight,
                         float* input_grad) {
  const Sizes sizes(call);
  run_tasks(call.batch * call.groups, call.threads, [&](std::int64_t part) {
    const std::int64_t group = part % call.groups;
    const float* filters = weight + group * call.filters * sizes.depth;
    float* image = input_grad + part * sizes.pixels;
    if (!sizes.is_plain) {
      std::fill_n(image, sizes.pixels, 0.0F);
    }
    for (std::int64_t block = 0; block < sizes.blocks(call); ++block) {
      const PlaceRows rows = sizes.rows(call, block);
      const std::int64_t first = rows.first * call.places.width;
      const std::int64_t count = rows.count * call.places.width;
      float* columns =
          sizes.is_plain ? image + first : scratch().numbers<float>(sizes.depth * count);
      multiply(
          {columns, sizes.depth, count, sizes.is_plain ? sizes.places : count},
          {filters, sizes.depth, call.filters, 1, sizes.depth},
          {grad + part * call.filters * sizes.places + first, call.filters, count, sizes.places},
          1);
      if (!sizes.is_plain) {
        fold_image(columns, call.size, call.window, call.places, rows, image);
      }
    }
  });
}

void convolve_weight_grad(const Convolution& call, const float* grad, const float* input,
                          float* weight_grad) {
  const Sizes sizes(call);
  std::fill_n(weight_grad, call.groups * call.filters * sizes.depth, 0.0F);
  for (std::int64_t part = 0; part < call.batch * call.groups; ++part) {
    const std::int64_t group = part % call.groups;
    const Matrix sum(weight_grad + group * call.filters * sizes.depth, call.filters, sizes.depth,
                     sizes.depth);
    for (std::int64_t block = 0; block < sizes.blocks(call); ++block) {
      const PlaceRows rows = sizes.rows(call, block);
      const std::int64_t first = rows.first * call.places.width;
      const std::int64_t count = rows.count * call.places.width;
      const Matrix seen = columns_of(call, sizes, input + part * sizes.pixels, rows);
      const TensorView columns = seen.view();
      multiply(
          sum,
          {grad + part * call.filters * sizes.places + first, call.filters, count, sizes.places},
          {static_cast<const float*>(columns.data), count, sizes.depth, 1, columns.stride(0)},
          call.threads, true);
    }
  }
}

}  // namespace gt
