// Checks the operands of a matrix product, and words the errors about them.
#include <stdexcept>

#include "core/parallel.h"
#include "cpu/matmul/matmul.h"

namespace gt {
namespace {

constexpr int kRankMax = 16;

[[noreturn]] void refuse_shapes(const MatmulCall& call, const char* why) {
  throw std::invalid_argument(message("matmul: out ", call.out.shape_copy(), ", a ",
                                      call.a.shape_copy(), " and b ", call.b.shape_copy(), " ",
                                      why));
}

bool sums_are_floats(Element element) {
  return element == Element::kFloat32 || element == Element::kBfloat16;
}

void check_elements(const MatmulCall& call) {
  const Element element = call.out.element;
  if (element != Element::kFloat32 && element != Element::kFloat64 &&
      element != Element::kBfloat16) {
    throw DtypeError(message("matmul: out has dtype ", element_name(element),
                             ", not float32, float64 or bfloat16"));
  }
  const auto check = [&](const char* name, const TensorView* operand, bool may_differ) {
    if (operand == nullptr || operand->element == element ||
        (may_differ && sums_are_floats(element) && sums_are_floats(operand->element))) {
      return;
    }
    throw DtypeError(message("matmul: ", name, " has dtype ", element_name(operand->element),
                             ", out has ", element_name(element)));
  };
  check("a", &call.a, true);
  check("b", &call.b, true);
  check("bias", call.bias, false);
  check("residual", call.residual, false);
}

void check_batch(const MatmulCall& call, const TensorView& operand) {
  for (int dim = 3; dim <= operand.rank; ++dim) {
    if (dim > call.out.rank ||
        (operand.size(-dim) != 1 && operand.size(-dim) != call.out.size(-dim))) {
      refuse_shapes(call, "differ in their leading dims");
    }
  }
}

void check_shapes(const MatmulCall& call) {
  if (call.out.rank < 2 || call.a.rank < 2 || call.b.rank < 2 || call.out.rank > kRankMax) {
    refuse_shapes(call, "need 2 to 16 dims each");
  }
  if (call.a.size(-1) != call.b.size(-2) || call.out.size(-2) != call.a.size(-2) ||
      call.out.size(-1) != call.b.size(-1)) {
    refuse_shapes(call, "are not [..., m, n], [..., m, k] and [..., k, n]");
  }
  check_batch(call, call.a);
  check_batch(call, call.b);
}

bool last_is_contiguous(const TensorView& view) {
  return view.stride(-1) == 1 || view.size(-1) < 2;
}

void check_added(const MatmulCall& call) {
  if (call.bias != nullptr && (call.bias->rank != 1 || call.bias->size(0) != call.out.size(-1) ||
                               !last_is_contiguous(*call.bias))) {
    throw std::invalid_argument(message("matmul: bias ", call.bias->shape_copy(),
                                        " is not contiguous with out's last dim, ",
                                        call.out.size(-1)));
  }
  if (call.residual == nullptr && call.epilogue.activation == Activation::kGate) {
    throw std::invalid_argument("matmul: activation 'gate' needs a residual");
  }
  if (call.residual != nullptr && (call.residual->shape_copy() != call.out.shape_copy() ||
                                   !last_is_contiguous(*call.residual))) {
    throw std::invalid_argument(message("matmul: residual ", call.residual->shape_copy(),
                                        " is not of out's shape ", call.out.shape_copy(),
                                        " with a contiguous last dim"));
  }
}

}  // namespace

void check_matmul(const MatmulCall& call) {
  if (call.threads < 1 || call.threads > kThreadsMax) {
    throw std::invalid_argument(
        message("matmul: threads ", call.threads, " is not in [1, ", kThreadsMax, "]"));
  }
  check_elements(call);
  check_shapes(call);
  check_added(call);
  if (!last_is_contiguous(call.out)) {
    throw std::invalid_argument(message("matmul: out ", call.out.shape_copy(), " with strides ",
                                        call.out.strides_copy(),
                                        " is not contiguous in its last dim"));
  }
}

}  // namespace gt
