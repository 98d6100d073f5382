// What windows see of images, as the columns of a matrix: float32, contiguous.
#pragma once

#include <cstdint>

namespace gt {

struct ImageWindow {
  std::int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
};

struct Image {
  std::int64_t channels, height, width;
};

// Places of a window along both dimensions.
struct Places {
  std::int64_t height, width;
};

// Some of the rows of places.
struct PlaceRows {
  std::int64_t first, count;
};

// What each window of some rows sees: out is [channels kernel_h kernel_w, rows places.width], zeros
// where it is outside.
void unfold_image(const float* image, const Image& size, const ImageWindow& window, Places places,
                  PlaceRows rows, float* out);

// The other way round: adds each window's numbers to the pixels where they come from.
void fold_image(const float* columns, const Image& size, const ImageWindow& window, Places places,
                PlaceRows rows, float* image);

}  // namespace gt
