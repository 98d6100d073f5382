// Attention by GT's own kernels.
#include <ATen/Parallel.h>
#include <ATen/Tensor.h>

#include "own.h"

namespace gt {
namespace {

using at::Tensor;

// What attention is told from `first` on, in the order of gt/aten/own.txt.
struct AttentionOptions {
  AttentionOptions(const Values& values, size_t first)
      : mask(optional_of(values[first])),
        has_seeds(values[first + 1].isTensor()),
        is_causal(values[first + 2].toBool() ? 1 : 0),
        scale(values[first + 4].toDouble()) {}

  bool fits(const Tensor& query, const Tensor& key, const Tensor& value) const {
    bool ranks = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
    return ranks && !has_seeds && (!mask || is_float(*mask)) &&
           query.size(2) >= kernels.sizes.queries_min && key.size(2) > 0;
  }

  // With all dimensions of the scores, by strides of zero.
  std::optional<Tensor> whole_mask(const Tensor& query, const Tensor& key) const {
    if (!mask) return std::nullopt;
    return mask->expand({query.size(0), query.size(1), query.size(2), key.size(2)});
  }

  std::optional<Tensor> mask;
  bool has_seeds;
  double is_causal;
  double scale;
};

}  // namespace

bool attention(const Values& values, Values& results) {
  Tensor query = tensor_of(values[0]);
  Tensor key = tensor_of(values[1]);
  Tensor value = tensor_of(values[2]);
  AttentionOptions options(values, 3);
  if (kernels.attention == nullptr || !are_floats({&query, &key, &value}) ||
      !options.fits(query, key, value))
    return false;
  at::IntArrayRef rows = query.sizes().slice(0, 3);
  std::vector<int64_t> sizes = rows.vec();
  Tensor logsumexp = empty(sizes, query);
  sizes.push_back(value.size(-1));
  Tensor output = empty(sizes, query);
  std::optional<Tensor> mask = options.whole_mask(query, key);
  call(kernels.attention,
       {given(output), given(logsumexp), given(query), given(key), given(value), given(mask)},
       {options.is_causal, options.scale}, at::get_num_threads());
  results = {output, logsumexp};
  return true;
}

bool attention_backward(const Values& values, Values& results) {
  Tensor grad = tensor_of(values[0]);
  Tensor query = tensor_of(values[1]);
  Tensor key = tensor_of(values[2]);
  Tensor value = tensor_of(values[3]);
  // Strided where a worker takes its part of what several have whole.
  Tensor output = tensor_of(values[4]).contiguous();
  Tensor logsumexp = tensor_of(values[5]).contiguous();
  AttentionOptions options(values, 6);
  if (kernels.attention_backward == nullptr ||
      !are_floats({&grad, &query, &key, &value, &output, &logsumexp}) ||
      !options.fits(query, key, value))
    return false;
  Tensor made[] = {empty(query.sizes(), query), empty(key.sizes(), key),
                   empty(value.sizes(), value)};
  std::optional<Tensor> mask = options.whole_mask(query, key);
  call(kernels.attention_backward,
       {given(output), given(logsumexp), given(query), given(key), given(value), given(mask),
        given(grad), given(made[0]), given(made[1]), given(made[2])},
       {options.is_causal, options.scale}, at::get_num_threads());
  results = {made[0], made[1], made[2]};
  return true;
}

}  // namespace gt
