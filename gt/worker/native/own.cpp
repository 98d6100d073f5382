// What GT's own kernels (csrc, in gt._kernels) run in place of ATen's, and GT's own operators. The
// choice is the one of Python's kernels, by operands alone (gt/worker/own_kernels.py has the
// sizes): both have the same bits.
#include <ATen/Parallel.h>
#include <ATen/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sum.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <string_view>

#include "kernel_calls.h"
#include "program.h"

namespace gt {
namespace {

using at::Tensor;
using Values = std::vector<c10::IValue>;

constexpr size_t ERROR_BYTES = 512;

struct Kernels {
  KernelCall matmul = nullptr;
  KernelCall adam = nullptr;
  KernelCall attention = nullptr;
  KernelCall attention_backward = nullptr;
  KernelCall recurrent = nullptr;
  KernelCall recurrent_backward = nullptr;
  // None, until they are there.
  OwnSizes sizes{INT64_MAX, INT64_MAX, INT64_MAX};
  // Of products and updates, whose threads are cheap to wake; the others have as many as ATen's at
  // the moment.
  int threads = 1;
};

Kernels kernels;

struct Replaced {
  std::string_view op;
  Own own;
};

constexpr Replaced REPLACED[] = {
    {"aten::matmul", Own::Matmul},
    {"aten::linear", Own::Linear},
    {"aten::_fused_adamw_", Own::AdamW},
    {"aten::_fused_adam_", Own::Adam},
    {"aten::convolution", Own::Convolution},
    {"aten::conv1d", Own::Convolution},
    {"aten::conv2d", Own::Convolution},
    {"aten::conv3d", Own::Convolution},
    {"aten::conv_transpose1d", Own::Convolution},
    {"aten::conv_transpose2d", Own::Convolution},
    {"aten::conv_transpose3d", Own::Convolution},
    {"aten::convolution_backward", Own::ConvolutionBackward},
};

bool is_float(const Tensor& tensor) {
  return tensor.defined() && tensor.scalar_type() == at::kFloat && tensor.is_cpu() &&
         tensor.layout() == at::kStrided && !tensor.is_neg();
}

bool are_floats(std::initializer_list<const Tensor*> tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const Tensor* one) { return one == nullptr || is_float(*one); });
}

KernelTensor given(const Tensor& tensor) {
  return {const_cast<void*>(tensor.const_data_ptr()), tensor.sizes().data(),
          tensor.strides().data(), static_cast<int32_t>(tensor.dim())};
}

KernelTensor absent() { return {nullptr, nullptr, nullptr, 0}; }

KernelTensor given(const std::optional<Tensor>& tensor) {
  return tensor ? given(*tensor) : absent();
}

void call(KernelCall kernel, std::initializer_list<KernelTensor> tensors,
          std::initializer_list<double> numbers, int threads) {
  char text[ERROR_BYTES];
  int status = kernel(tensors.begin(), numbers.begin(), threads, text, sizeof text);
  TORCH_CHECK(status == 0, text);
}

Tensor tensor_of(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : Tensor();
}

std::optional<Tensor> optional_of(const c10::IValue& value) {
  return value.isTensor() ? std::optional<Tensor>(value.toTensor()) : std::nullopt;
}

Tensor empty(at::IntArrayRef sizes, const Tensor& like) { return at::empty(sizes, like.options()); }

// left @ right + bias: [..., m, k] and [k, n]; undefined where ATen is to run it.
Tensor product(const Tensor& left, const Tensor& right, const std::optional<Tensor>& bias) {
  bool fits = kernels.matmul != nullptr && left.dim() > 1 && right.dim() == 2 &&
              are_floats({&left, &right, bias ? &*bias : nullptr});
  if (!fits) return {};
  int64_t depth = right.size(0);
  int64_t columns = right.size(1);
  if (depth == 0 || left.size(-1) != depth ||
      left.numel() * columns < kernels.sizes.product_work_min)
    return {};
  if (bias && (bias->dim() != 1 || bias->size(0) != columns || bias->stride(0) != 1)) return {};
  std::vector<int64_t> sizes = left.sizes().vec();
  sizes.back() = columns;
  Tensor out = empty(sizes, left);
  Tensor rows = left.dim() == 2 ? left : left.reshape({-1, depth});
  int64_t out_sizes[] = {rows.size(0), columns};
  int64_t out_strides[] = {columns, 1};
  call(
      kernels.matmul,
      {{out.mutable_data_ptr(), out_sizes, out_strides, 2}, given(rows), given(right), given(bias)},
      {}, kernels.threads);
  return out;
}

// Of one parameter: a step of several in a group is for ATen, whose kernel takes lists.
bool adam(const Values& values, bool decoupled) {
  Tensor state[4];
  for (size_t place = 0; place < 4; ++place) {
    const auto list = values[place].toTensorVector();
    if (list.size() != 1 || !is_float(list[0]) || !list[0].is_contiguous()) return false;
    state[place] = list[0];
    if (state[place].numel() != state[0].numel()) return false;
  }
  bool amsgrad = values[11].toBool();
  if (kernels.adam == nullptr || amsgrad || state[0].numel() < kernels.sizes.update_elements_min)
    return false;
  double step = values[5].toTensorVector().at(0).item<double>();
  double lr = values[6].toDouble();
  double beta1 = values[7].toDouble();
  double beta2 = values[8].toDouble();
  double weight_decay = values[9].toDouble();
  double eps = values[10].toDouble();
  call(kernels.adam, {given(state[0]), given(state[1]), given(state[2]), given(state[3]), absent()},
       {lr, beta1, beta2, eps, weight_decay, step, decoupled ? 1.0 : 0.0,
        values[12].toBool() ? 1.0 : 0.0},
       kernels.threads);
  return true;
}

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
  Tensor output = tensor_of(values[4]);
  Tensor logsumexp = tensor_of(values[5]);
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

// A kind of recurrent layer, as csrc/cpu/recurrent counts them.
enum class Recurrence { Lstm = 0, Gru = 1, Tanh = 2, Relu = 3 };

int64_t gates_of(Recurrence kind) {
  if (kind == Recurrence::Lstm) return 4;
  return kind == Recurrence::Gru ? 3 : 1;
}

bool is_whole(const std::optional<Tensor>& tensor, at::IntArrayRef sizes) {
  return !tensor || (is_float(*tensor) && tensor->numel() > 0 && tensor->sizes() == sizes);
}

std::optional<Tensor> contiguous(const std::optional<Tensor>& tensor) {
  return tensor ? std::optional<Tensor>(tensor->contiguous()) : std::nullopt;
}

struct Layer {
  Recurrence kind;
  bool reverse;
  std::optional<Tensor> hidden, cell, weight, bias;

  // Whether the kernel takes the layer, whose states are [t, b, h].
  bool fits(int64_t steps, int64_t rows, int64_t units) const {
    int64_t width = gates_of(kind) * units;
    return steps > 0 && is_whole(hidden, {rows, units}) && is_whole(cell, {rows, units}) &&
           is_whole(weight, {width, units}) && is_whole(bias, {width});
  }
};

// Output, then cells, then activations, where the kind has them.
bool recurrent(Layer layer, const Tensor& gates, Values& results) {
  if (kernels.recurrent == nullptr || gates.dim() != 3 || !layer.hidden || layer.hidden->dim() != 2)
    return false;
  int64_t steps = gates.size(0);
  int64_t rows = gates.size(1);
  int64_t units = layer.hidden->size(1);
  if (!layer.fits(steps, rows, units) ||
      !is_whole(gates, {steps, rows, gates_of(layer.kind) * units}))
    return false;
  Tensor output = empty({steps, rows, units}, gates);
  bool has_activations = layer.kind == Recurrence::Lstm || layer.kind == Recurrence::Gru;
  std::optional<Tensor> cells, activations;
  if (layer.cell) cells = empty({steps, rows, units}, gates);
  if (has_activations) activations = empty({steps, rows, 4 * units}, gates);
  Tensor read = gates.contiguous();
  std::optional<Tensor> hidden = contiguous(layer.hidden);
  std::optional<Tensor> cell = contiguous(layer.cell);
  std::optional<Tensor> weight = contiguous(layer.weight);
  std::optional<Tensor> bias = contiguous(layer.bias);
  call(kernels.recurrent,
       {given(read), given(hidden), given(cell), given(weight), given(bias), given(output),
        given(cells), given(activations)},
       {static_cast<double>(layer.kind), layer.reverse ? 1.0 : 0.0}, at::get_num_threads());
  results = {output};
  if (cells) results.emplace_back(*cells);
  if (activations) results.emplace_back(*activations);
  return true;
}

// What the forward pass of a layer has made, and the gradients of it.
struct Kept {
  Tensor grad, output;
  std::optional<Tensor> grad_cells, cells, activations;
};

// The state before each step: [b, h] and [t, b, h] to [t, b, h].
Tensor before(const Tensor& first, const Tensor& later, bool reverse) {
  int64_t steps = later.size(0);
  if (reverse) return at::cat({later.narrow(0, 1, steps - 1), first.unsqueeze(0)});
  return at::cat({first.unsqueeze(0), later.narrow(0, 0, steps - 1)});
}

// Gradients of the gates, of the first states, of the weight; for GRU of its bias too.
bool recurrent_backward(Layer layer, Kept kept, Values& results) {
  if (kernels.recurrent_backward == nullptr || !is_float(kept.grad) || kept.grad.dim() != 3)
    return false;
  at::IntArrayRef sizes = kept.grad.sizes();
  int64_t steps = sizes[0];
  int64_t rows = sizes[1];
  int64_t units = sizes[2];
  bool fits = layer.fits(steps, rows, units) && is_whole(kept.grad_cells, sizes) &&
              is_whole(kept.output, sizes) && is_whole(kept.cells, sizes) &&
              is_whole(kept.activations, {steps, rows, 4 * units}) && kept.grad.numel() > 0;
  if (!fits) return false;
  bool is_gru = layer.kind == Recurrence::Gru;
  Tensor grads = empty({steps, rows, gates_of(layer.kind) * units}, kept.grad);
  Tensor grads_state = is_gru ? empty(grads.sizes(), grads) : grads;
  Tensor grad_hidden = empty({rows, units}, grads);
  std::optional<Tensor> grad_cell;
  if (layer.cell) grad_cell = empty({rows, units}, grads);
  Tensor grad = kept.grad.contiguous();
  Tensor output = kept.output.contiguous();
  std::optional<Tensor> grad_cells = contiguous(kept.grad_cells);
  std::optional<Tensor> cells = contiguous(kept.cells);
  std::optional<Tensor> activations = contiguous(kept.activations);
  std::optional<Tensor> hidden = contiguous(layer.hidden);
  std::optional<Tensor> cell = contiguous(layer.cell);
  std::optional<Tensor> weight = contiguous(layer.weight);
  call(kernels.recurrent_backward,
       {given(grad), given(grad_cells), given(hidden), given(cell), given(weight), given(output),
        given(cells), given(activations), given(grads), given(grads_state), given(grad_hidden),
        given(grad_cell)},
       {static_cast<double>(layer.kind), layer.reverse ? 1.0 : 0.0}, at::get_num_threads());
  Tensor states = before(*layer.hidden, kept.output, layer.reverse).flatten(0, 1);
  Tensor flat = grads_state.flatten(0, 1).t();
  Tensor of_weight = product(flat, states, std::nullopt);
  if (!of_weight.defined()) of_weight = at::matmul(flat, states);
  results = {grads, grad_hidden};
  if (grad_cell) results.emplace_back(*grad_cell);
  results.emplace_back(of_weight);
  if (is_gru) results.emplace_back(grads_state.sum(at::IntArrayRef{0, 1}));
  return true;
}

Recurrence elman(const c10::IValue& relu) {
  return relu.toBool() ? Recurrence::Relu : Recurrence::Tanh;
}

bool one_result(const Tensor& made, Values& results) {
  if (made.defined()) results = {made};
  return made.defined();
}

}  // namespace

Own own_of(std::string_view op) {
  for (const Replaced& one : REPLACED) {
    if (one.op == op) return one.own;
  }
  return Own::None;
}

bool is_small_product(const Call& call, const Operand* operands) {
  if (call.own != Own::Matmul && call.own != Own::Linear) return false;
  const c10::TensorImpl* sides[2];
  for (size_t place = 0; place < 2; ++place) {
    const Argument& argument = call.arguments[place];
    const Operand& operand = operands[argument.index];
    if (argument.source != Source::Operand || operand.kind != Kind::Tensor) return false;
    sides[place] = std::bit_cast<const c10::TensorImpl*>(operand.bits);
  }
  if (sides[1]->dim() != 2) return true;
  int64_t columns = sides[1]->size(call.own == Own::Matmul ? 1 : 0);
  return sides[0]->numel() * columns < kernels.sizes.product_work_min;
}

bool run_own(Own own, const Values& v, Values& results) {
  switch (own) {
    case Own::None:
    case Own::Convolution:
    case Own::ConvolutionBackward:
      return false;
    case Own::Matmul:
      return one_result(product(tensor_of(v[0]), tensor_of(v[1]), std::nullopt), results);
    case Own::Linear: {
      Tensor weight = tensor_of(v[1]);
      if (!weight.defined() || weight.dim() != 2) return false;
      return one_result(product(tensor_of(v[0]), weight.t(), optional_of(v[2])), results);
    }
    case Own::AdamW:
    case Own::Adam:
      return adam(v, own == Own::AdamW);
    case Own::Attention:
      return attention(v, results);
    case Own::AttentionBackward:
      return attention_backward(v, results);
    case Own::LstmLayer:
      return recurrent({Recurrence::Lstm, v[4].toBool(), optional_of(v[1]), optional_of(v[2]),
                        optional_of(v[3]), std::nullopt},
                       tensor_of(v[0]), results);
    case Own::LstmLayerBackward:
      return recurrent_backward({Recurrence::Lstm, v[8].toBool(), optional_of(v[2]),
                                 optional_of(v[3]), optional_of(v[4]), std::nullopt},
                                {tensor_of(v[0]), tensor_of(v[5]), optional_of(v[1]),
                                 optional_of(v[6]), optional_of(v[7])},
                                results);
    case Own::GruLayer:
      return recurrent({Recurrence::Gru, v[4].toBool(), optional_of(v[1]), std::nullopt,
                        optional_of(v[2]), optional_of(v[3])},
                       tensor_of(v[0]), results);
    case Own::GruLayerBackward:
      return recurrent_backward(
          {Recurrence::Gru, v[5].toBool(), optional_of(v[1]), std::nullopt, optional_of(v[2]),
           std::nullopt},
          {tensor_of(v[0]), tensor_of(v[3]), std::nullopt, std::nullopt, optional_of(v[4])},
          results);
    case Own::RnnLayer:
      return recurrent({elman(v[3]), v[4].toBool(), optional_of(v[1]), std::nullopt,
                        optional_of(v[2]), std::nullopt},
                       tensor_of(v[0]), results);
    case Own::RnnLayerBackward:
      return recurrent_backward(
          {elman(v[4]), v[5].toBool(), optional_of(v[1]), std::nullopt, optional_of(v[2]),
           std::nullopt},
          {tensor_of(v[0]), tensor_of(v[3]), std::nullopt, std::nullopt, std::nullopt}, results);
  }
  return false;
}

}  // namespace gt

extern "C" {

// Where the kernels are: gt._kernels' function that finds one by its name; how many threads they
// may use; and from which sizes on they run.
void gt_set_kernels(gt::KernelCall (*find)(const char*), int threads, const gt::OwnSizes* sizes) {
  gt::kernels = {find("matmul"),
                 find("adam"),
                 find("attention"),
                 find("attention_backward"),
                 find("recurrent"),
                 find("recurrent_backward"),
                 *sizes,
                 threads};
}
}
