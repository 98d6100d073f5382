// Recurrent layers by GT's own kernels.
#include <ATen/Parallel.h>
#include <ATen/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sum.h>

#include "own.h"

namespace gt {
namespace {

using at::Tensor;

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

}  // namespace

bool run_recurrent(Own own, const Values& v, Values& results) {
  switch (own) {
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
    default:
      return false;
  }
}

}  // namespace gt
