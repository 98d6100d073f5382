// Inner loops of matrix multiplication, once for each instruction set. They handle packed panels
// and rows; shapes, strides, blocks and threads belong to matmul.cpp.
#pragma once

#include <cstdint>

#include "core/cpu_path.h"
#include "core/element.h"

namespace gt {

// kGate: the residual is a gate and is not added. The result is zero where the gate is not above
// zero, as in relu's gradient (a NaN gate passes).
enum class Activation { kNone, kRelu, kGelu, kGeluTanh, kSilu, kGate };

// Epilogue of a row of sums: activation(scale * sum + bias) + residual, cast to the output's
// element. bias and residual may be null; they have the output's element.
struct Epilogue {
  double scale = 1;
  Activation activation = Activation::kNone;
};

// Numbers in memory, with strides across a panel and along its depth.
struct PanelSource {
  const void* data;
  Element element;
  std::int64_t across;
  std::int64_t along;
};

constexpr int kSkinnyRowsMax = 8;

// T, float or double, is the type of the sums. For each step of depth, a panel holds `rows` (of a)
// or `columns` (of b) adjacent numbers.
template <class T>
struct MatmulPath {
  int rows;
  int columns;
  // Steps of depth in one unit of a panel (2 where a product takes pairs), and bytes of a unit.
  int depth_step;
  int step_bytes;

  // tile[rows][columns] (+)= a_panel * b_panel, with `ld` elements from row to row. Computes at
  // least the first `some_rows` and `some_columns` of the tile.
  void (*multiply)(std::int64_t depth, int some_rows, int some_columns, const void* a_panel,
                   const void* b_panel, T* tile, std::int64_t ld, bool add);
  // Fills a panel of `width` numbers for each step, from `count` numbers and zeros after them.
  void (*pack)(const PanelSource& source, int width, int count, std::int64_t depth, void* panel);
  // out = epilogue(sums) for one row of `count`; out may be sums.
  void (*finish)(const Epilogue& epilogue, Element element, std::int64_t count, const T* sums,
                 const void* bias, const void* residual, void* out);
  // sums[m][columns] = x[m][depth] * w for m rows up to kSkinnyRowsMax and columns [begin, end) of
  // w; begin is a multiple of 64. Rows of w (skinny_rows) or its columns (skinny_columns) are
  // contiguous.
  void (*skinny_rows)(int m, std::int64_t depth, const T* x, const PanelSource& w,
                      std::int64_t begin, std::int64_t end, T* sums, std::int64_t ld);
  void (*skinny_columns)(int m, std::int64_t depth, const T* x, const PanelSource& w,
                         std::int64_t begin, std::int64_t end, T* sums, std::int64_t ld);
  // Converts `count` numbers of x in place to the type that skinny_columns reads; null where that
  // is T.
  void (*narrow)(std::int64_t count, T* x);
};

extern const MatmulPath<float> kScalarMatmulF32;
extern const MatmulPath<double> kScalarMatmulF64;
// Entries are null on machines that cannot run them; x86.cpp fills the table, no_x86.cpp elsewhere.
extern const PathTable<MatmulPath<float>> kMatmulF32;
extern const PathTable<MatmulPath<double>> kMatmulF64;
// Paths for operands of bfloat16; null for instruction sets without a bfloat16 product.
extern const PathTable<MatmulPath<float>> kMatmulBf16;

extern const MatmulPath<float> kAvx2MatmulF32;
extern const MatmulPath<double> kAvx2MatmulF64;
extern const MatmulPath<float> kAvx512MatmulF32;
extern const MatmulPath<double> kAvx512MatmulF64;
extern const MatmulPath<float> kAvx512MatmulBf16;

}  // namespace gt
