// Checks the operands of attention, and words the errors about them.
#include <stdexcept>

#include "core/parallel.h"
#include "cpu/attention/attention.h"

namespace gt {
namespace {

void check_one(const char* name, const TensorView& view, const Shape& shape,
               Element element = Element::kFloat32) {
  if (view.element != element) {
    throw DtypeError(message("attention: ", name, " has dtype ", element_name(view.element),
                             ", not ", element_name(element)));
  }
  if (view.shape_copy() != shape) {
    throw std::invalid_argument(
        message("attention: ", name, " ", view.shape_copy(), " is not of shape ", shape));
  }
}

void check_written(const char* name, const TensorView& view, const Shape& shape,
                   Element element = Element::kFloat32) {
  check_one(name, view, shape, element);
  if (!view.is_contiguous()) {
    throw std::invalid_argument(message("attention: ", name, " ", view.shape_copy(),
                                        " with strides ", view.strides_copy(),
                                        " is not C-contiguous"));
  }
}

void check_dropout(double dropout_p) {
  if (!(dropout_p > 0 && dropout_p < 1)) {
    throw std::invalid_argument(message("attention: dropout_p ", dropout_p, " is not in (0, 1)"));
  }
}

}  // namespace

void check_attention_kept(const TensorView& kept, const TensorView& seeds, double dropout_p) {
  if (kept.rank != 4) {
    throw std::invalid_argument(message("attention: kept ", kept.shape_copy(), " needs 4 dims"));
  }
  check_written("kept", kept, kept.shape_copy(), Element::kBool);
  check_one("seeds", seeds, {kept.size(0), kept.size(1), kept.size(2)}, Element::kInt64);
  check_dropout(dropout_p);
}

void check_attention(const AttentionCall& call) {
  const TensorView &query = call.query, &key = call.key, &value = call.value;
  if (call.threads < 1 || call.threads > kThreadsMax) {
    throw std::invalid_argument(
        message("attention: threads ", call.threads, " is not in [1, ", kThreadsMax, "]"));
  }
  if (query.rank != 4 || key.rank != 4 || value.rank != 4) {
    throw std::invalid_argument(message("attention: query ", query.shape_copy(), ", key ",
                                        key.shape_copy(), " and value ", value.shape_copy(),
                                        " need 4 dims each"));
  }
  const std::int64_t b = query.size(0), h = query.size(1), t = query.size(2), s = key.size(2);
  check_one("query", query, query.shape_copy());
  check_one("key", key, {b, h, s, query.size(3)});
  check_one("value", value, {b, h, s, value.size(3)});
  if (call.mask != nullptr) {
    check_one("attn_mask", *call.mask, {b, h, t, s});
  }
  if (call.seeds != nullptr) {
    check_one("seeds", *call.seeds, {b, h, t}, Element::kInt64);
    check_dropout(call.dropout_p);
  }
  check_written("output", call.output, {b, h, t, value.size(3)});
  check_written("logsumexp", call.logsumexp, {b, h, t});
}

void check_attention_gradient(const AttentionCall& call, const AttentionGradient& gradient) {
  check_attention(call);
  check_one("grad", gradient.grad, call.output.shape_copy());
  check_written("grad_query", gradient.grad_query, call.query.shape_copy());
  check_written("grad_key", gradient.grad_key, call.key.shape_copy());
  check_written("grad_value", gradient.grad_value, call.value.shape_copy());
}

}  // namespace gt
