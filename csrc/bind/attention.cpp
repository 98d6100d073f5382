// Converts and checks Python's arguments for attention. No computation here.
#include "bind/attention.h"

#include <optional>

#include "bind/tensor_argument.h"
#include "core/calls.h"
#include "cpu/attention/attention.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

constexpr const char* kOp = "attention";

// The view of an argument that may be None.
const TensorView* view_of(std::optional<TensorArgument>& argument, const char* name,
                          nb::handle given) {
  return given.is_none() ? nullptr : &argument.emplace(kOp, name, given).view();
}

// What forward and backward are told alike: their arguments as views, which live as long as this.
struct AttentionArguments {
  struct Options {
    bool is_causal;
    double dropout_p;
    double scale;
    int threads;
  };

  // output and logsumexp are written by forward and read by backward.
  AttentionArguments(const TensorView& output, const TensorView& logsumexp, nb::handle query,
                     nb::handle key, nb::handle value, nb::handle mask, nb::handle seeds,
                     const Options& options)
      : operands{{kOp, "query", query}, {kOp, "key", key}, {kOp, "value", value}},
        call{output,
             logsumexp,
             operands[0].view(),
             operands[1].view(),
             operands[2].view(),
             view_of(optional[0], "attn_mask", mask),
             view_of(optional[1], "seeds", seeds),
             options.dropout_p,
             options.is_causal,
             options.scale,
             options.threads} {}

  TensorArgument operands[3];
  std::optional<TensorArgument> optional[2];
  AttentionCall call;
};

void forward(nb::handle output, nb::handle logsumexp, nb::handle query, nb::handle key,
             nb::handle value, nb::handle mask, nb::handle seeds, bool is_causal, double dropout_p,
             double scale, int threads) {
  count_call();
  const OutputArgument written[] = {{kOp, "output", output}, {kOp, "logsumexp", logsumexp}};
  const AttentionArguments arguments{written[0].view(),
                                     written[1].view(),
                                     query,
                                     key,
                                     value,
                                     mask,
                                     seeds,
                                     {is_causal, dropout_p, scale, threads}};
  check_attention(arguments.call);
  const nb::gil_scoped_release release;
  attention(arguments.call);
}

void backward(nb::handle grad_query, nb::handle grad_key, nb::handle grad_value, nb::handle grad,
              nb::handle output, nb::handle logsumexp, nb::handle query, nb::handle key,
              nb::handle value, nb::handle mask, nb::handle seeds, bool is_causal, double dropout_p,
              double scale, int threads) {
  count_call();
  const OutputArgument written[] = {{kOp, "grad_query", grad_query},
                                    {kOp, "grad_key", grad_key},
                                    {kOp, "grad_value", grad_value}};
  const TensorArgument read[] = {
      {kOp, "grad", grad}, {kOp, "output", output}, {kOp, "logsumexp", logsumexp}};
  const AttentionArguments arguments{
      read[1].view(), read[2].view(), query, key,
      value,          mask,           seeds, {is_causal, dropout_p, scale, threads}};
  const AttentionGradient gradient{read[0].view(), written[0].view(), written[1].view(),
                                   written[2].view()};
  check_attention_gradient(arguments.call, gradient);
  const nb::gil_scoped_release release;
  attention_backward(arguments.call, gradient);
}

void kept(nb::handle out, nb::handle seeds, double dropout_p) {
  count_call();
  const OutputArgument written{kOp, "kept", out};
  const TensorArgument read{kOp, "seeds", seeds};
  check_attention_kept(written.view(), read.view(), dropout_p);
  const nb::gil_scoped_release release;
  attention_kept(written.view(), read.view(), dropout_p);
}

}  // namespace

void bind_attention(nb::module_& module) {
  module.def(
      "attention", &forward, "output"_a, "logsumexp"_a, "query"_a, "key"_a, "value"_a,
      "attn_mask"_a.none(), "seeds"_a.none(), "is_causal"_a, "dropout_p"_a, "scale"_a,
      "threads"_a = 1,
      R"(Writes softmax(query @ key.T * scale + attn_mask) @ value, without all scores at once.

With seeds, weights are dropped as attention_kept says, and the others grow by 1 / (1 - dropout_p).
logsumexp is that of the scores, whatever is dropped.

The bits do not depend on threads. A query that sees no key gets zeros, and -inf as logsumexp.

Args:
    output: Array [b, h, t, v] on the CPU of float32, as all are; C-contiguous.
    logsumexp: [b, h, t], C-contiguous: of each query's scores.
    query: [b, h, t, k], any strides. Also below.
    key: [b, h, s, k], any strides.
    value: [b, h, s, v], any strides.
    attn_mask: [b, h, t, s] or None, any strides: added to the scores.
    seeds: [b, h, t] of int64 or None, any strides: one for each query.
    is_causal: Query t sees keys up to t only.
    dropout_p: Probability of dropping a weight, in (0, 1); unused without seeds.
    scale: Factor of query @ key.T.
    threads: Threads to use at most, 1 to 256.

Raises:
    TypeError: An argument is not a CPU array of float32.
    ValueError: Shapes, strides or threads do not fit.)");
  module.def("attention_backward", &backward, "grad_query"_a, "grad_key"_a, "grad_value"_a,
             "grad"_a, "output"_a, "logsumexp"_a, "query"_a, "key"_a, "value"_a,
             "attn_mask"_a.none(), "seeds"_a.none(), "is_causal"_a, "dropout_p"_a, "scale"_a,
             "threads"_a = 1,
             R"(Writes the gradients of query, key and value from what attention has written.

The bits do not depend on threads; a head is one thread's.

Args:
    grad_query, grad_key, grad_value: C-contiguous, of the operands' shapes.
    grad: [b, h, t, v], any strides: the output's gradient. The others: as for attention.

Raises:
    TypeError: An argument is not a CPU array of float32.
    ValueError: Shapes, strides or threads do not fit.)");
  module.def("attention_kept", &kept, "kept"_a, "seeds"_a, "dropout_p"_a,
             R"(Writes which weights attention keeps under dropout.

Key k of a query is dropped where word k % 4 of Philox's block k / 4, under the query's seed, is
below dropout_p * 2**32.

Args:
    kept: Array [b, h, t, s] of bool on the CPU, C-contiguous.
    seeds: [b, h, t] of int64, any strides.
    dropout_p: Probability, in (0, 1).

Raises:
    TypeError: An argument is no CPU array of its dtype.
    ValueError: Shapes, strides or the probability do not fit.)");
}

}  // namespace gt
