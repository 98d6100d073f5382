// Recurrent layers over a whole sequence: which calls the kernels take.
#include "cpu/recurrent/recurrent.h"

#include <algorithm>

#include "cpu/matmul/matmul.h"
#include "table/kernel.h"

namespace gt {
namespace {

constexpr std::int64_t gates_of(Recurrence kind) {
  return kind == Recurrence::kLstm ? 4 : kind == Recurrence::kGru ? 3 : 1;
}

// True if an operand is float32, not empty and of these sizes, or is absent.
bool is_whole(const std::optional<TensorView>& view, std::initializer_list<std::int64_t> sizes) {
  return !view ||
         (is_float32(*view) && !view->is_empty() && std::ranges::equal(sizes_of(*view), sizes));
}

// A layer's states at first, and its weight of the state.
struct Layer {
  // States are [t, b, h].
  bool fits(std::int64_t steps, std::int64_t rows, std::int64_t units) const {
    const std::int64_t width = gates_of(kind) * units;
    return steps > 0 && is_whole(hidden, {rows, units}) && is_whole(cell, {rows, units}) &&
           is_whole(weight, {width, units}) && is_whole(bias, {width});
  }

  Recurrence kind = Recurrence::kTanh;
  TensorView hidden;
  std::optional<TensorView> cell;
  TensorView weight;
  std::optional<TensorView> bias;
  bool reverse = false;
};

Recurrence elman(bool relu) { return relu ? Recurrence::kRelu : Recurrence::kTanh; }

// The output [t, b, h]; the cells [t, b, h] of an LSTM; the activations [t, b, 4 * h] of an LSTM or
// a GRU.
struct ForwardCall {
  bool is_valid() const {
    if (gates.rank != 3 || layer.hidden.rank != 2) {
      return false;
    }
    const std::int64_t steps = gates.size(0), rows = gates.size(1), units = layer.hidden.size(1);
    return is_whole(gates, {steps, rows, gates_of(layer.kind) * units}) &&
           layer.fits(steps, rows, units);
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const int threads = results.threads();
    const RowMajor read(gates, threads), hidden(layer.hidden, threads), cell(layer.cell, threads),
        weight(layer.weight, threads), bias(layer.bias, threads);
    const std::int64_t steps = gates.size(0), rows = gates.size(1), units = layer.hidden.size(1);
    const std::int64_t states[] = {steps, rows, units};
    const std::int64_t widths[] = {steps, rows, 4 * units};
    const bool has_activations = gates_of(layer.kind) > 1;
    float* output = results.floats(states);
    float* cells = layer.cell ? results.floats(states) : nullptr;
    float* activations = has_activations ? results.floats(widths) : nullptr;
    recurrent_forward(layer.kind, {steps, rows, units, layer.reverse},
                      {read.floats(), hidden.floats(), cell.floats(), bias.floats(), nullptr,
                       output, cells, activations},
                      weight.floats(), threads);
    return true;
  }

  TensorView gates;
  Layer layer;
};

// gates, hidden, cell, weight, reverse.
struct LstmCall : ForwardCall {
  explicit LstmCall(Arguments& from) {
    layer.kind = Recurrence::kLstm;
    gates = from.tensor();
    layer.hidden = from.tensor();
    layer.cell = from.tensor();
    layer.weight = from.tensor();
    layer.reverse = from.flag();
  }
};

// gates, hidden, weight, bias, reverse.
struct GruCall : ForwardCall {
  explicit GruCall(Arguments& from) {
    layer.kind = Recurrence::kGru;
    gates = from.tensor();
    layer.hidden = from.tensor();
    layer.weight = from.tensor();
    layer.bias = from.optional_tensor();
    layer.reverse = from.flag();
  }
};

// gates, hidden, weight, relu, reverse.
struct ElmanCall : ForwardCall {
  explicit ElmanCall(Arguments& from) {
    gates = from.tensor();
    layer.hidden = from.tensor();
    layer.weight = from.tensor();
    layer.kind = elman(from.flag());
    layer.reverse = from.flag();
  }
};

// Values that the forward pass has kept, and the gradients of its results.
struct Kept {
  TensorView grad;
  std::optional<TensorView> grad_cells;
  TensorView output;
  std::optional<TensorView> cells, activations;
};

// The state before each step [t * b, h], of the first state [b, h] and those after each step.
std::unique_ptr<float[]> states_before(const float* first, const float* later,
                                       const RecurrentSizes& sizes) {
  const std::int64_t state = sizes.rows * sizes.units, rest = state * (sizes.steps - 1);
  std::unique_ptr<float[]> before(new float[static_cast<std::size_t>(state * sizes.steps)]);
  std::copy_n(first, state, before.get() + (sizes.reverse ? rest : 0));
  std::copy_n(later + (sizes.reverse ? state : 0), rest,
              before.get() + (sizes.reverse ? 0 : state));
  return before;
}

// out [width, units] = grads [rows, width] transposed @ states [rows, units]: one product for all
// steps of a sequence.
void weight_gradient(const float* grads, const float* states, float* out, std::int64_t rows,
                     std::int64_t width, std::int64_t units, int threads) {
  const auto view = [](const float* data, const std::int64_t* sizes, const std::int64_t* strides) {
    return TensorView{const_cast<float*>(data), Element::kFloat32, 2, sizes, strides};
  };
  const std::int64_t out_sizes[] = {width, units}, out_strides[] = {units, 1};
  const std::int64_t left_sizes[] = {width, rows}, left_strides[] = {1, width};
  const std::int64_t right_sizes[] = {rows, units}, right_strides[] = {units, 1};
  MatmulCall call{view(out, out_sizes, out_strides), view(grads, left_sizes, left_strides),
                  view(states, right_sizes, right_strides)};
  call.threads = threads;
  matmul(call);
}

// out [width]: sums over the rows of grads [rows, width], in float64.
void bias_gradient(const float* grads, float* out, std::int64_t rows, std::int64_t width) {
  std::vector<double> sums(static_cast<std::size_t>(width));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < width; ++column) {
      sums[static_cast<std::size_t>(column)] += static_cast<double>(grads[row * width + column]);
    }
  }
  std::ranges::transform(sums, out, [](double sum) { return static_cast<float>(sum); });
}

// Gradients of the gates [t, b, g * h], of the first states, of the weight; for a GRU of its bias
// too.
struct BackwardCall {
  bool is_valid() const {
    if (!is_float32(kept.grad) || kept.grad.rank != 3 || kept.grad.is_empty()) {
      return false;
    }
    const std::int64_t steps = kept.grad.size(0), rows = kept.grad.size(1),
                       units = kept.grad.size(2);
    return layer.fits(steps, rows, units) && is_whole(kept.grad_cells, {steps, rows, units}) &&
           is_whole(kept.output, {steps, rows, units}) &&
           is_whole(kept.cells, {steps, rows, units}) &&
           is_whole(kept.activations, {steps, rows, 4 * units});
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const int threads = results.threads();
    const RowMajor grad(kept.grad, threads), grad_cells(kept.grad_cells, threads),
        output(kept.output, threads), cells(kept.cells, threads),
        activations(kept.activations, threads), hidden(layer.hidden, threads),
        cell(layer.cell, threads), weight(layer.weight, threads);
    const std::int64_t steps = kept.grad.size(0), rows = kept.grad.size(1),
                       units = kept.grad.size(2);
    const std::int64_t widths[] = {steps, rows, gates_of(layer.kind) * units};
    const std::int64_t state[] = {rows, units};
    const RecurrentSizes sizes{steps, rows, units, layer.reverse};
    const bool is_gru = layer.kind == Recurrence::kGru;
    float* grads = results.floats(widths);
    const std::unique_ptr<float[]> of_product(
        is_gru ? new float[static_cast<std::size_t>(steps * rows * widths[2])] : nullptr);
    float* grads_state = is_gru ? of_product.get() : grads;
    float* grad_hidden = results.floats(state);
    float* grad_cell = layer.cell ? results.floats(state) : nullptr;
    recurrent_backward(layer.kind, sizes,
                       {grad.floats(), grad_cells.floats(), hidden.floats(), cell.floats(), nullptr,
                        output.floats(), cells.floats(), activations.floats(), grads, grads_state,
                        grad_hidden, grad_cell},
                       weight.floats(), threads);
    const auto states = states_before(hidden.floats(), output.floats(), sizes);
    float* of_weight = results.floats(sizes_of(layer.weight));
    weight_gradient(grads_state, states.get(), of_weight, steps * rows, widths[2], units,
                    results.threads_most());
    if (is_gru) {
      bias_gradient(grads_state, results.floats({&widths[2], 1}), steps * rows, widths[2]);
    }
    return true;
  }

  Kept kept;
  Layer layer;
};

// grad, grad_cells, hidden, cell, weight, output, cells, activations, reverse.
struct LstmBackwardCall : BackwardCall {
  explicit LstmBackwardCall(Arguments& from) {
    kept.grad = from.tensor();
    kept.grad_cells = from.optional_tensor();
    layer.kind = Recurrence::kLstm;
    layer.hidden = from.tensor();
    layer.cell = from.tensor();
    layer.weight = from.tensor();
    kept.output = from.tensor();
    kept.cells = from.tensor();
    kept.activations = from.tensor();
    layer.reverse = from.flag();
  }
};

// grad, hidden, weight, output, activations, reverse.
struct GruBackwardCall : BackwardCall {
  explicit GruBackwardCall(Arguments& from) {
    kept.grad = from.tensor();
    layer.kind = Recurrence::kGru;
    layer.hidden = from.tensor();
    layer.weight = from.tensor();
    kept.output = from.tensor();
    kept.activations = from.tensor();
    layer.reverse = from.flag();
  }
};

// grad, hidden, weight, output, relu, reverse.
struct ElmanBackwardCall : BackwardCall {
  explicit ElmanBackwardCall(Arguments& from) {
    kept.grad = from.tensor();
    layer.hidden = from.tensor();
    layer.weight = from.tensor();
    kept.output = from.tensor();
    layer.kind = elman(from.flag());
    layer.reverse = from.flag();
  }
};

constexpr KernelRow kRows[] = {
    {"lstm_layer", 3, run_kernel<LstmCall>},
    {"lstm_layer_backward", 4, run_kernel<LstmBackwardCall>},
    {"gru_layer", 2, run_kernel<GruCall>},
    {"gru_layer_backward", 4, run_kernel<GruBackwardCall>},
    {"rnn_layer", 1, run_kernel<ElmanCall>},
    {"rnn_layer_backward", 3, run_kernel<ElmanBackwardCall>},
};

}  // namespace

std::span<const KernelRow> recurrent_kernels() { return kRows; }

}  // namespace gt
