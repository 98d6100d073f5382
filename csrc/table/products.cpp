// Products of matrices: which calls the kernel takes.
#include <limits>

#include "core/processor.h"
#include "cpu/matmul/matmul.h"
#include "table/kernel.h"

namespace gt {
namespace {

// Multiplications between which the kernel pays. From the least on its threads, which are cheap to
// wake, make up for the library's other advantages.
struct Work {
  std::int64_t least, most;
};

constexpr Work kWork = {64 * 64 * 64, std::numeric_limits<std::int64_t>::max()};
// On an Intel Xeon with AVX-512, products of 256^3 to 2048^3 took 1.02 to 1.14 of MKL's time.
constexpr Work kWorkBesideMklOnIntel = {kWork.least, 256 * 256 * 256 - 1};

// The right side [k, n] of a product, which may be a transposed weight.
struct RightSide {
  static RightSide of(const TensorView& matrix, bool is_transposed) {
    if (matrix.rank != 2) {
      return {matrix, false, {}, {}};
    }
    const int rows = is_transposed ? 1 : 0;
    return {matrix,
            true,
            {matrix.size(rows), matrix.size(1 - rows)},
            {matrix.stride(rows), matrix.stride(1 - rows)}};
  }
  TensorView view() const { return {matrix.data, matrix.element, 2, sizes, strides}; }

  TensorView matrix;
  bool is_matrix;
  std::int64_t sizes[2];
  std::int64_t strides[2];
};

// left [..., m, k] @ right [k, n] + bias [n]; then nothing, "relu", or with a gate of the result's
// sizes zero where that is not above zero.
struct ProductCall {
  bool is_valid() const {
    return right.is_matrix && are_float32(left, right.matrix, bias, gate) && left.rank > 1 &&
           left.size(-1) == right.sizes[0] && !left.is_empty() && right.sizes[1] > 0 &&
           has_bias() && has_gate();
  }
  bool pays(const KernelCaller& caller) const {
    const bool is_mkl_home = caller.has_mkl != 0 && processor() == Processor::kIntelAvx512;
    const Work& work = is_mkl_home ? kWorkBesideMklOnIntel : kWork;
    const std::int64_t multiplications = left.elements() * right.sizes[1];
    return multiplications >= work.least && multiplications <= work.most;
  }
  bool run(Results& results) const {
    const int threads = results.threads_most();
    const std::int64_t depth = right.sizes[0], rows = left.elements() / depth;
    const std::optional<std::int64_t> stride = row_stride();
    const RowMajor copy(stride ? std::nullopt : std::optional(left), threads);
    const std::int64_t left_sizes[] = {rows, depth};
    const std::int64_t left_strides[] = {stride.value_or(depth), stride ? left.stride(-1) : 1};
    std::vector<std::int64_t> sizes(left.shape, left.shape + left.rank);
    sizes.back() = right.sizes[1];
    const std::int64_t out_sizes[] = {rows, right.sizes[1]};
    const auto matrix = [&](void* data) {
      return TensorView{data, Element::kFloat32, 2, out_sizes, nullptr};
    };
    const Contiguous out(matrix(results.floats(sizes)));
    const Contiguous factor(matrix(gate ? gate->data : nullptr));
    MatmulCall call{
        out.view(),
        {stride ? left.data : copy.data(), Element::kFloat32, 2, left_sizes, left_strides},
        right.view()};
    call.bias = bias ? &*bias : nullptr;
    call.residual = gate ? &factor.view() : nullptr;
    call.epilogue.activation = gate      ? Activation::kGate
                               : is_relu ? Activation::kRelu
                                         : Activation::kNone;
    call.threads = threads;
    matmul(call);
    return true;
  }

  bool has_bias() const {
    return !bias || (bias->rank == 1 && bias->size(0) == right.sizes[1] && bias->stride(0) == 1);
  }
  bool has_gate() const {
    if (!gate) {
      return true;
    }
    const Sizes rows = sizes_of(left).first(static_cast<std::size_t>(left.rank - 1));
    return gate->is_contiguous() && gate->rank == left.rank &&
           std::ranges::equal(sizes_of(*gate).first(rows.size()), rows) &&
           gate->size(-1) == right.sizes[1];
  }

  // Elements from one row of the left side to the next, where one stride leads through all its
  // leading dimensions.
  std::optional<std::int64_t> row_stride() const {
    std::optional<std::int64_t> stride;
    std::int64_t expected = 0;
    for (int dim = left.rank - 2; dim >= 0; --dim) {
      if (left.size(dim) == 1) {
        continue;
      }
      if (stride && left.stride(dim) != expected) {
        return std::nullopt;
      }
      stride = stride.value_or(left.stride(dim));
      expected = left.stride(dim) * left.size(dim);
    }
    return stride.value_or(left.stride(-2));
  }

  TensorView left;
  RightSide right;
  std::optional<TensorView> bias, gate;
  bool is_relu = false;

  // Behind the operands of both: what follows the product in the same pass.
  void read_following(Arguments& from) {
    gate = from.optional_tensor();
    is_relu = from.optional_text() == "relu";
  }
};

// self, other, gate, following.
struct MatmulProduct : ProductCall {
  explicit MatmulProduct(Arguments& from) {
    left = from.tensor();
    right = RightSide::of(from.tensor(), false);
    read_following(from);
  }
};

// input, weight [n, k], bias, gate, following.
struct LinearProduct : ProductCall {
  explicit LinearProduct(Arguments& from) {
    left = from.tensor();
    right = RightSide::of(from.tensor(), true);
    bias = from.optional_tensor();
    read_following(from);
  }
};

constexpr KernelRow kRows[] = {
    {"matmul", 1, run_kernel<MatmulProduct>},
    {"linear", 1, run_kernel<LinearProduct>},
};

}  // namespace

std::span<const KernelRow> product_kernels() { return kRows; }

}  // namespace gt
