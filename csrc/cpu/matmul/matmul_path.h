// The inner loops of matrix multiplication, once for each instruction set. They know packed panels
// and rows; shapes, strides, blocks and threads are matmul.cpp's.
#pragma once

#include <cstdint>

#include "core/cpu_path.h"
#include "core/element.h"

namespace gt {

// kGate: the residual is not added; where it is not above zero the result is zero, as relu's
// gradient is (NaN lets it pass).
enum class Activation { kNone, kRelu, kGelu, kGeluTanh, kSilu, kGate };

// What happens to a row of sums on its way out: activation(scale * sum + bias) + residual, cast to
// the output's element. bias and residual may be null; they have the output's element.
struct Epilogue {
  double scale = 1;
  Activation activation = Activation::kNone;
};

// Numbers of element `Element` in memory, with the strides along a panel's width and its depth.
struct PanelSource {
  const void* data;
  Element element;
  std::int64_t across;
  std::int64_t along;
};

constexpr int kSkinnyRowsMax = 8;

// T is float or double: what sums are kept in. Panels hold `rows` (of a) or `columns` (of b)
// numbers for each step of depth, side by side.
template <class T>
struct MatmulPath {
  int rows;
  int columns;
  // Steps of depth that one unit of a panel holds (2 where a product takes pairs), and bytes of it.
  int depth_step;
  int step_bytes;

  // tile[rows][columns] (+)= a_panel * b_panel, ld elements from row to row; of the tile at least
  // the first `some_rows` and `some_columns`, which may be fewer.
  void (*multiply)(std::int64_t depth, int some_rows, int some_columns, const void* a_panel,
                   const void* b_panel, T* tile, std::int64_t ld, bool add);
  // Fills a panel of `width` numbers for each step from the first `count` ones; zeros after them.
  void (*pack)(const PanelSource& source, int width, int count, std::int64_t depth, void* panel);
  // out = epilogue(sums) for one row of `count`; out may be sums.
  void (*finish)(const Epilogue& epilogue, Element element, std::int64_t count, const T* sums,
                 const void* bias, const void* residual, void* out);
  // sums[m][columns] = x[m][depth] * w for m rows up to kSkinnyRowsMax, columns [begin, end) of w;
  // begin a multiple of 64. w's rows (of depth) or its columns are contiguous.
  void (*skinny_rows)(int m, std::int64_t depth, const T* x, const PanelSource& w,
                      std::int64_t begin, std::int64_t end, T* sums, std::int64_t ld);
  void (*skinny_columns)(int m, std::int64_t depth, const T* x, const PanelSource& w,
                         std::int64_t begin, std::int64_t end, T* sums, std::int64_t ld);
  // Makes of `count` numbers, in place, what skinny_columns reads as x; null where it is T.
  void (*narrow)(std::int64_t count, T* x);
};

extern const MatmulPath<float> kScalarMatmulF32;
extern const MatmulPath<double> kScalarMatmulF64;
// Null on machines that cannot run them: x86.cpp has them, no_x86.cpp stands in.
extern const PathTable<MatmulPath<float>> kMatmulF32;
extern const PathTable<MatmulPath<double>> kMatmulF64;
// For operands of bfloat16; null below the path that multiplies them itself.
extern const PathTable<MatmulPath<float>> kMatmulBf16;

extern const MatmulPath<float> kAvx2MatmulF32;
extern const MatmulPath<double> kAvx2MatmulF64;
extern const MatmulPath<float> kAvx512MatmulF32;
extern const MatmulPath<double> kAvx512MatmulF64;
extern const MatmulPath<float> kAvx512MatmulBf16;

}  // namespace gt
