// Windows over images as the columns of a matrix: float32, contiguous.
#pragma once

#include <cstdint>

namespace gt {

struct ImageWindow {
  std::int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
};

struct Image {
  std::int64_t channels, height, width;
};

// Number of windows along each dimension.
struct Places {
  std::int64_t height, width;
};

// A range of the rows of places.
struct PlaceRows {
  std::int64_t first, count;
};

// Unfolds the windows of some rows: out is [channels * kernel_h * kernel_w, rows * places.width],
// zeros outside the image.
void unfold_image(const float* image, const Image& size, const ImageWindow& window, Places places,
                  PlaceRows rows, float* out);

// The reverse: adds each window's numbers to the pixels that they came from.
void fold_image(const float* columns, const Image& size, const ImageWindow& window, Places places,
                PlaceRows rows, float* image);

}  // namespace gt
