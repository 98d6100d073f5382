// Copies numbers between images and columns; the caller multiplies.
#include "cpu/images.h"

#include <algorithm>

namespace gt {
namespace {

// Places [first, last) along one dimension for which an element of the window is inside the image.
struct Inside {
  std::int64_t first, last;
};

Inside inside(std::int64_t places, std::int64_t size, std::int64_t stride, std::int64_t start) {
  // Condition: start + stride * place is in [0, size).
  const std::int64_t first = start < 0 ? (-start + stride - 1) / stride : 0;
  const std::int64_t last = start < size ? (size - start + stride - 1) / stride : 0;
  return {std::min(first, places), std::clamp<std::int64_t>(last, std::min(first, places), places)};
}

// Calls visit(column, row of the image, first place inside, count, first pixel) for each row of
// each element of the window; `column` is the row's offset in the unfolded array.
template <class Visit>
void visit_rows(const Image& size, const ImageWindow& window, Places places, PlaceRows rows,
                const Visit& visit) {
  const std::int64_t end = rows.first + rows.count;
  std::int64_t column = 0;
  for (std::int64_t channel = 0; channel < size.channels; ++channel) {
    for (std::int64_t i = 0; i < window.kernel_h; ++i) {
      for (std::int64_t j = 0; j < window.kernel_w; ++j) {
        const std::int64_t top = i * window.dilation_h - window.pad_h;
        const std::int64_t left = j * window.dilation_w - window.pad_w;
        const Inside across = inside(places.width, size.width, window.stride_w, left);
        for (std::int64_t place = rows.first; place < end; ++place, column += places.width) {
          const std::int64_t row = top + place * window.stride_h;
          const bool is_inside = row >= 0 && row < size.height;
          const std::int64_t count = is_inside ? across.last - across.first : 0;
          const std::int64_t pixel =
              (channel * size.height + row) * size.width + left + across.first * window.stride_w;
          visit(column, across.first, count, pixel);
        }
      }
    }
  }
}

}  // namespace

void unfold_image(const float* image, const Image& size, const ImageWindow& window, Places places,
                  PlaceRows rows, float* out) {
  visit_rows(size, window, places, rows,
             [&](std::int64_t column, std::int64_t first, std::int64_t count, std::int64_t pixel) {
               float* row = out + column;
               if (count == 0) {
                 std::fill_n(row, places.width, 0.0F);
                 return;
               }
               std::fill_n(row, first, 0.0F);
               const float* from = image + pixel;
               if (window.stride_w == 1) {
                 std::copy_n(from, count, row + first);
               } else {
                 for (std::int64_t at = 0; at < count; ++at) {
                   row[first + at] = from[at * window.stride_w];
                 }
               }
               std::fill_n(row + first + count, places.width - first - count, 0.0F);
             });
}

void fold_image(const float* columns, const Image& size, const ImageWindow& window, Places places,
                PlaceRows rows, float* image) {
  visit_rows(size, window, places, rows,
             [&](std::int64_t column, std::int64_t first, std::int64_t count, std::int64_t pixel) {
               const float* row = columns + column + first;
               for (std::int64_t at = 0; at < count; ++at) {
                 image[pixel + at * window.stride_w] += row[at];
               }
             });
}

}  // namespace gt
