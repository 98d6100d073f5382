// What GT's own kernels (csrc, in gt._kernels) run in place of ATen's, and GT's own operators. The
// choice is the one of Python's kernels, by operands alone (gt/worker/own_kernels.py has the
// sizes): both have the same bits.
#include "own.h"

#include <ATen/Tensor.h>

#include <bit>
#include <string_view>

namespace gt {

Kernels kernels;

namespace {

using at::Tensor;

struct Replaced {
  std::string_view op;
  Own own;
  std::string_view overload = "";
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
    {"aten::_fused_rms_norm", Own::RmsNorm},
    {"aten::native_batch_norm_backward", Own::BatchNormBackward},
    {"aten::reshape", Own::Reshape},
    {"aten::cumsum", Own::Cumsum},
    {"aten::sum", Own::Sum, "dim_IntList"},
    {"aten::sort", Own::Sort, "stable"},
    {"aten::topk", Own::Topk},
    {"aten::argmax", Own::Argmax},
    {"aten::argmin", Own::Argmin},
    {"aten::any", Own::Any, "dims"},
    {"aten::all", Own::All, "dims"},
    {"aten::var", Own::Var, "correction"},
    {"aten::std", Own::Std, "correction"},
};

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

bool one_result(const Tensor& made, Values& results) {
  if (made.defined()) results = {made};
  return made.defined();
}

}  // namespace

at::Tensor product(const at::Tensor& left, const at::Tensor& right,
                   const std::optional<at::Tensor>& bias, const Following& following) {
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
  const std::optional<at::Tensor>& gate = following.gate;
  if (gate &&
      (!is_float(*gate) || gate->sizes() != at::IntArrayRef(sizes) || !gate->is_contiguous()))
    return {};
  at::Tensor out = empty(sizes, left);
  at::Tensor rows = left.dim() == 2 ? left : left.reshape({-1, depth});
  int64_t out_sizes[] = {rows.size(0), columns};
  int64_t out_strides[] = {columns, 1};
  const auto row_major = [&](void* data) { return KernelTensor{data, out_sizes, out_strides, 2}; };
  call(kernels.matmul,
       {row_major(out.mutable_data_ptr()), given(rows), given(right), given(bias),
        gate ? row_major(given(*gate).data) : absent()},
       {static_cast<double>(following.what)}, kernels.threads);
  return out;
}

namespace {

// The product of a call's arguments, by an operator that makes one.
Tensor product_of(Own own, const Values& v, const Following& following) {
  if (own == Own::Matmul) return product(tensor_of(v[0]), tensor_of(v[1]), std::nullopt, following);
  Tensor weight = tensor_of(v[1]);
  if (!weight.defined() || weight.dim() != 2) return {};
  return product(tensor_of(v[0]), weight.t(), optional_of(v[2]), following);
}

}  // namespace

at::Tensor product_with_relu(Own own, const Values& values) {
  return product_of(own, values, {What::Relu, {}});
}

at::Tensor gated_product(Own own, const Values& values, const at::Tensor& gate) {
  return product_of(own, values, {What::Gate, gate});
}

Own own_of(std::string_view op, std::string_view overload) {
  for (const Replaced& one : REPLACED) {
    if (one.op == op && one.overload == overload) return one.own;
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

bool is_for_aten(const Call& call, const Operand* operands) {
  bool is_asked = call.own == Own::Reshape || call.own == Own::Sum;
  if (!is_asked || call.arguments[0].source != Source::Operand) return false;
  const Operand& operand = operands[call.arguments[0].index];
  if (operand.kind != Kind::Tensor) return false;
  const c10::TensorImpl& tensor = *impl_of(operand);
  return call.own == Own::Reshape ? tensor.is_contiguous()
                                  : tensor.dtype() != caffe2::TypeMeta::Make<bool>();
}

bool run_own(Own own, const Values& v, Values& results) {
  switch (own) {
    case Own::None:
    case Own::Convolution:
    case Own::ConvolutionBackward:
      return false;
    case Own::Matmul:
    case Own::Linear:
      return one_result(product_of(own, v, {}), results);
    case Own::AdamW:
    case Own::Adam:
      return adam(v, own == Own::AdamW);
    case Own::Attention:
      return attention(v, results);
    case Own::AttentionBackward:
      return attention_backward(v, results);
    case Own::LstmLayer:
    case Own::LstmLayerBackward:
    case Own::GruLayer:
    case Own::GruLayerBackward:
    case Own::RnnLayer:
    case Own::RnnLayerBackward:
      return run_recurrent(own, v, results);
    case Own::RmsNorm:
      return rms_norm(v, results);
    case Own::RmsNormBackward:
      return rms_norm_backward(v, results);
    case Own::BatchNorm:
      return batch_norm(v, results);
    case Own::BatchNormBackward:
      return batch_norm_backward(v, results);
    case Own::Reshape:
      return reshape(v, results);
    case Own::Cumsum:
      return cumsum(v, results);
    case Own::Sum:
      return count_true(v, results);
    case Own::Sort:
      return sort(v, results);
    case Own::Topk:
      return topk(v, results);
    case Own::Argmax:
    case Own::Argmin:
      return places(own, v, results);
    case Own::Any:
    case Own::All:
      return truth(own, v, results);
    case Own::Var:
    case Own::Std:
      return spread(own, v, results);
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
                 find("chain"),
                 find("choice"),
                 find("comparison"),
                 find("attention"),
                 find("attention_backward"),
                 find("recurrent"),
                 find("recurrent_backward"),
                 find("rms_norm"),
                 find("rms_norm_backward"),
                 find("batch_norm"),
                 find("batch_norm_backward"),
                 find("cumsum"),
                 find("count_true"),
                 find("places"),
                 find("truth"),
                 find("spread"),
                 find("sort"),
                 find("strided_copy"),
                 find("topk"),
                 *sizes,
                 threads};
}
}
