// Attention's CUDA kernels for Python: addresses and sizes in, launches queued. No computation
// here. gt/worker/cuda/attention.py says which tensors are taken.
#include "bind/cuda_attention.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <string>
#include <tuple>

#include "bind/cuda.h"
#include "cuda/host/attention_calls.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

using cuda::Address;
using cuda::AttentionLaunch;
using cuda::AttentionOperand;
using cuda::Launcher;

using Operand = std::tuple<Address, std::int64_t, std::int64_t, std::int64_t>;
using Operands = std::tuple<Operand, Operand, Operand>;
using Sizes =
    std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
using Options = std::tuple<Address, double, bool, float>;
using Results = std::tuple<Address, Address>;
using Gradients = std::tuple<Address, Address, Address>;

AttentionOperand operand_of(const Operand& given) {
  const auto& [address, row, head, batch] = given;
  return {address, row, head, batch};
}

AttentionLaunch launch_of(const std::string& dtype, const Sizes& sizes, const Operands& operands,
                          const Options& options, const Results& results, std::uintptr_t stream) {
  const auto& [batches, heads, key_heads, queries, keys, width] = sizes;
  const auto& [query, key, value] = operands;
  const auto& [seeds, dropout_p, is_causal, scale] = options;
  const auto& [output, logsumexp] = results;
  return {cuda_element(dtype),
          {batches, heads, key_heads, queries, keys, width},
          operand_of(query),
          operand_of(key),
          operand_of(value),
          seeds,
          dropout_p,
          is_causal,
          scale,
          output,
          logsumexp,
          stream};
}

}  // namespace

void bind_cuda_attention(nb::class_<Launcher>& cuda) {
  cuda.def(
      "attention",
      [](Launcher& launcher, const std::string& dtype, const Sizes& sizes, const Operands& operands,
         const Options& options, const Results& results, std::uintptr_t stream) {
        cuda::attention(launcher, launch_of(dtype, sizes, operands, options, results, stream));
      },
      "dtype"_a, "sizes"_a, "operands"_a, "options"_a, "results"_a, "stream"_a,
      R"(output = softmax(query @ key^T * scale) @ value, in bfloat16 or float16.

Args:
    sizes: Batches, heads, heads of keys, queries, keys, head size.
    operands: query, key and value: each an address with the elements from row to row, head to head
        and batch to batch.
    options: Seeds of dropout, an address or 0; its probability; whether query i sees keys up to i
        only; scale.
    results: Addresses of the output and of its float32 logsumexp, both dense.)");
  cuda.def(
      "attention_backward",
      [](Launcher& launcher, const std::string& dtype, const Sizes& sizes, const Operands& operands,
         const Options& options, const Results& results, const Operand& grad, Address products,
         const Gradients& gradients, std::uintptr_t stream) {
        const auto& [grad_query, grad_key, grad_value] = gradients;
        cuda::attention_backward(launcher,
                                 launch_of(dtype, sizes, operands, options, results, stream),
                                 {operand_of(grad), products, grad_query, grad_key, grad_value});
      },
      "dtype"_a, "sizes"_a, "operands"_a, "options"_a, "results"_a, "grad"_a, "products"_a,
      "gradients"_a, "stream"_a,
      R"(Gradients of query, key and value, dense, from what attention has made.

Args:
    grad: Of the output, as an operand.
    products: Working memory: a float32 for each query.)");
}

}  // namespace gt
