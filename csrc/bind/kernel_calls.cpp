// Kernels for callers without Python (gt/worker/native/own.cpp), by name. No computation here.
#include "native/kernel_calls.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/calls.h"
#include "core/pool.h"
#include "core/tensor_view.h"
#include "cpu/attention/attention.h"
#include "cpu/batch_norm.h"
#include "cpu/chain.h"
#include "cpu/choices.h"
#include "cpu/comparisons.h"
#include "cpu/dims.h"
#include "cpu/matmul/matmul.h"
#include "cpu/norms.h"
#include "cpu/recurrent/recurrent.h"
#include "cpu/sort.h"
#include "cpu/strided_copy.h"
#include "cpu/topk.h"
#include "cpu/updates.h"

namespace gt {
namespace {

// In the order of KernelElement.
constexpr Element kElements[] = {Element::kFloat32, Element::kBool, Element::kInt32,
                                 Element::kInt64};

TensorView view(const KernelTensor& tensor) {
  return {tensor.data, kElements[static_cast<int>(tensor.element)], tensor.dims, tensor.sizes,
          tensor.strides};
}

bool is_absent(const KernelTensor& tensor) { return tensor.sizes == nullptr; }

float* floats(const KernelTensor& tensor) { return static_cast<float*>(tensor.data); }

// out [m, n], a [m, k], b [k, n], bias [n] or absent, gate [m, n] or absent; what becomes of it: 0
// nothing, 1 relu, 2 the gate.
void run_matmul(const KernelTensor* t, const double* n, int threads) {
  constexpr Activation kWhat[] = {Activation::kNone, Activation::kRelu, Activation::kGate};
  MatmulCall call{view(t[0]), view(t[1]), view(t[2])};
  TensorView bias;
  if (!is_absent(t[3])) {
    bias = view(t[3]);
    call.bias = &bias;
  }
  TensorView gate;
  if (!is_absent(t[4])) {
    gate = view(t[4]);
    call.residual = &gate;
  }
  call.epilogue.activation = kWhat[static_cast<int>(n[0])];
  call.threads = threads;
  check_matmul(call);
  matmul(call);
}

std::size_t elements(const KernelTensor& tensor) {
  std::size_t count = 1;
  for (int dim = 0; dim < tensor.dims; ++dim) {
    count *= static_cast<std::size_t>(tensor.sizes[dim]);
  }
  return count;
}

// param, grad, avg, avg_sq, max_sq or absent, all contiguous and of one size; lr, beta1, beta2,
// eps, weight_decay, step, decoupled, maximize.
void run_adam(const KernelTensor* t, const double* n, int threads) {
  const std::size_t count = elements(t[0]);
  const AdamNumbers numbers{n[0], n[1], n[2], n[3], n[4], n[5], n[6] != 0, n[7] != 0};
  adam({floats(t[0]), floats(t[1]), floats(t[2]), floats(t[3]), floats(t[4]), count},
       adam_step(numbers), threads);
}

// x, weight or absent, out, rstd, all contiguous, with a number of rstd a row, of which there is
// one at least; eps.
void run_rms_norm(const KernelTensor* t, const double* n, int threads) {
  const std::size_t rows = elements(t[3]);
  rms_norm(
      {floats(t[0]), floats(t[1]), n[0], floats(t[2]), floats(t[3]), rows, elements(t[0]) / rows},
      threads);
}

// grad, x, rstd, weight or absent, x_grad, weight_grad, as above.
void run_rms_norm_backward(const KernelTensor* t, const double*, int threads) {
  rms_norm_backward({floats(t[0]), floats(t[1]), floats(t[2]), floats(t[3]), floats(t[4]),
                     floats(t[5]), elements(t[2]), elements(t[5])},
                    threads);
}

// Channels of x, which has elements.
ChannelShape channel_shape(const KernelTensor& x, const KernelTensor& mean, double inner) {
  const auto beside = static_cast<std::size_t>(inner);
  const std::size_t channels = elements(mean);
  return {elements(x) / (channels * beside), channels, beside};
}

// x, weight or absent, bias or absent, out, mean, rstd, var, all contiguous; inner, of those that
// takes_batch_norm, eps.
void run_batch_norm(const KernelTensor* t, const double* n, int threads) {
  batch_norm({floats(t[0]), floats(t[1]), floats(t[2]), n[1], floats(t[3]), floats(t[4]),
              floats(t[5]), floats(t[6]), channel_shape(t[0], t[4], n[0])},
             threads);
}

// grad, x, mean, rstd, weight or absent, x_grad, weight_grad, bias_grad; inner, as above.
void run_batch_norm_backward(const KernelTensor* t, const double* n, int threads) {
  batch_norm_backward({floats(t[0]), floats(t[1]), floats(t[2]), floats(t[3]), floats(t[4]),
                       floats(t[5]), floats(t[6]), floats(t[7]), channel_shape(t[1], t[2], n[0])},
                      threads);
}

DimShape dim_shape(const double* n) {
  return {static_cast<std::size_t>(n[0]), static_cast<std::size_t>(n[1]),
          static_cast<std::size_t>(n[2])};
}

// x and out, contiguous; outer, count, inner, as in dims.h, whether x is of bool and out of int64.
void run_cumsum(const KernelTensor* t, const double* n, int threads) {
  if (n[3] != 0) {
    cumsum(static_cast<const std::uint8_t*>(t[0].data), static_cast<std::int64_t*>(t[1].data),
           dim_shape(n), threads);
  } else {
    cumsum(floats(t[0]), floats(t[1]), dim_shape(n), threads);
  }
}

// x of bool and out of int64; the same.
void run_count_true(const KernelTensor* t, const double* n, int threads) {
  count_true(static_cast<const std::uint8_t*>(t[0].data), static_cast<std::int64_t*>(t[1].data),
             dim_shape(n), threads);
}

// x and out of int64; the same, whether of the smallest.
void run_places(const KernelTensor* t, const double* n, int threads) {
  places(n[3] != 0 ? Place::kSmallest : Place::kLargest, floats(t[0]),
         static_cast<std::int64_t*>(t[1].data), dim_shape(n), threads);
}

// x and out of bool; the same, whether x is of bool, whether of all.
void run_truth(const KernelTensor* t, const double* n, int threads) {
  const Truth kind = n[4] != 0 ? Truth::kAll : Truth::kAny;
  auto* out = static_cast<std::uint8_t*>(t[1].data);
  if (n[3] != 0) {
    truth(kind, static_cast<const std::uint8_t*>(t[0].data), out, dim_shape(n), threads);
  } else {
    truth(kind, floats(t[0]), out, dim_shape(n), threads);
  }
}

// x and out; the same, correction, whether of roots.
void run_spread(const KernelTensor* t, const double* n, int threads) {
  spread({n[3], n[4] != 0}, floats(t[0]), floats(t[1]), dim_shape(n), threads);
}

// x, with elements, and out, contiguous; bytes of an element.
void run_strided_copy(const KernelTensor* t, const double* n, int threads) {
  std::vector<StridedDim> dims;
  for (int dim = 0; dim < t[0].dims; ++dim) {
    dims.push_back({t[0].sizes[dim], t[0].strides[dim]});
  }
  strided_copy(static_cast<std::size_t>(n[0]), t[0].data, dims, t[1].data, threads);
}

template <class T>
void run_sort_of(const KernelTensor* t, const SortedRows& shape, int threads) {
  sort_rows(static_cast<const T*>(t[0].data), static_cast<T*>(t[1].data),
            static_cast<std::int64_t*>(t[2].data), static_cast<std::uint8_t*>(t[3].data), shape,
            threads);
}

// x, values and places of int64 [rows, count], has_equal of bool [rows], all contiguous, with
// elements; x and values of float32, int32 or int64; whether descending.
void run_sort(const KernelTensor* t, const double* n, int threads) {
  const SortedRows shape{static_cast<std::size_t>(t[0].sizes[0]),
                         static_cast<std::size_t>(t[0].sizes[1]), n[0] != 0};
  if (t[0].element == KernelElement::Float32) {
    run_sort_of<float>(t, shape, threads);
  } else if (t[0].element == KernelElement::Int32) {
    run_sort_of<std::int32_t>(t, shape, threads);
  } else {
    run_sort_of<std::int64_t>(t, shape, threads);
  }
}

// x [rows, count] of float32, values and places of int64 [rows, k], is_unclear of bool [rows], all
// contiguous, with elements; whether of the largest.
void run_topk(const KernelTensor* t, const double* n, int threads) {
  const TopRows shape{static_cast<std::size_t>(t[0].sizes[0]),
                      static_cast<std::size_t>(t[0].sizes[1]),
                      static_cast<std::size_t>(t[1].sizes[1]), n[0] != 0};
  top_rows(floats(t[0]), floats(t[1]), static_cast<std::int64_t*>(t[2].data),
           static_cast<std::uint8_t*>(t[3].data), shape, threads);
}

// output, logsumexp, query, key, value, mask or absent; is_causal, scale.
struct AttentionArguments {
  AttentionArguments(const KernelTensor* t, const double* n, int threads)
      : mask(view(t[5])), call{view(t[0]), view(t[1]), view(t[2]),
                               view(t[3]), view(t[4]), is_absent(t[5]) ? nullptr : &mask,
                               nullptr,    0,          n[0] != 0,
                               n[1],       threads} {}

  TensorView mask;
  AttentionCall call;
};

void run_attention(const KernelTensor* t, const double* n, int threads) {
  const AttentionArguments arguments(t, n, threads);
  check_attention(arguments.call);
  attention(arguments.call);
}

// The same, and grad, grad_query, grad_key, grad_value.
void run_attention_backward(const KernelTensor* t, const double* n, int threads) {
  const AttentionArguments arguments(t, n, threads);
  const AttentionGradient gradient{view(t[6]), view(t[7]), view(t[8]), view(t[9])};
  check_attention_gradient(arguments.call, gradient);
  attention_backward(arguments.call, gradient);
}

RecurrentSizes sizes_of(const KernelTensor& of_states, bool reverse) {
  return {of_states.sizes[0], of_states.sizes[1], of_states.sizes[2], reverse};
}

// gates, hidden, cell, weight, bias, output, cells, activations as in recurrent_path.h, all
// contiguous, those that a kind lacks absent; kind, reverse.
void run_recurrent(const KernelTensor* t, const double* n, int threads) {
  recurrent_forward(static_cast<Recurrence>(n[0]), sizes_of(t[5], n[1] != 0),
                    {floats(t[0]), floats(t[1]), floats(t[2]), floats(t[4]), nullptr, floats(t[5]),
                     floats(t[6]), floats(t[7])},
                    floats(t[3]), threads);
}

// grad, grad_cells, hidden, cell, weight, output, cells, activations, grads, grads_state,
// grad_hidden, grad_cell; kind, reverse.
void run_recurrent_backward(const KernelTensor* t, const double* n, int threads) {
  recurrent_backward(
      static_cast<Recurrence>(n[0]), sizes_of(t[0], n[1] != 0),
      {floats(t[0]), floats(t[1]), floats(t[2]), floats(t[3]), nullptr, floats(t[5]), floats(t[6]),
       floats(t[7]), floats(t[8]), floats(t[9]), floats(t[10]), floats(t[11])},
      floats(t[4]), threads);
}

static_assert(kChainSteps == CHAIN_STEPS_MAX);
static_assert(kInnerMin == CHANNEL_MIN);

// In the order of ChainCode.
constexpr ChainOp kChainOps[] = {
    ChainOp::kNeg,  ChainOp::kAbs,          ChainOp::kSquare, ChainOp::kReciprocal, ChainOp::kRsqrt,
    ChainOp::kRelu, ChainOp::kCopy,         ChainOp::kAdd,    ChainOp::kSub,        ChainOp::kMul,
    ChainOp::kDiv,  ChainOp::kReluBackward, ChainOp::kEq,     ChainOp::kNe,         ChainOp::kLt,
    ChainOp::kLe,   ChainOp::kGt,           ChainOp::kGe,     ChainOp::kWhere};

ChainOperand chain_operand(ChainSource source, double number, const KernelTensor*& next) {
  switch (source) {
    case ChainSource::Result:
      break;
    case ChainSource::Number:
      return {ChainOperand::Kind::kNumber, static_cast<float>(number), {}};
    case ChainSource::Tensor:
      return {ChainOperand::Kind::kTensor, 0, view(*next++)};
  }
  return {};
}

// out, then the tensors of the steps in their order; how many steps there are and are to run at
// least, and of each seven numbers: its code, and of each of three operands its source and the
// number. How many have run: as many as fit, or none.
int run_chain(const KernelTensor* t, const double* n, int threads) {
  ChainStep steps[kChainSteps];
  const int count = std::min(static_cast<int>(*n++), kChainSteps);
  const int least = static_cast<int>(*n++);
  const KernelTensor* next = t + 1;
  for (int at = 0; at < count; ++at) {
    steps[at].op = kChainOps[static_cast<int>(*n++)];
    for (ChainOperand& operand : steps[at].operands) {
      operand = chain_operand(static_cast<ChainSource>(n[0]), n[1], next);
      n += 2;
    }
  }
  const int ran = fitting_chain(view(t[0]), steps, count, least, threads);
  if (ran > 0) {
    count_call();
  }
  return ran;
}

// out, condition of bool that fills it a number of times, x and y of its size or of one element:
// all contiguous, with elements; bytes of an element.
void run_choice(const KernelTensor* t, const double* n, int threads) {
  const std::size_t count = elements(t[0]);
  const ChoiceSides sides{static_cast<const std::uint8_t*>(t[1].data), t[2].data, t[3].data,
                          elements(t[2]) != count, elements(t[3]) != count};
  choose({static_cast<std::size_t>(n[0]), sides, elements(t[1]), t[0].data, count}, threads);
}

template <class T>
void run_comparison_of(Comparison kind, const KernelTensor* t, int threads) {
  const std::size_t count = elements(t[0]);
  const bool is_one = elements(t[2]) != count;
  compare(kind,
          Compared<T>{static_cast<const T*>(t[1].data), static_cast<const T*>(t[2].data), is_one,
                      static_cast<std::uint8_t*>(t[0].data), count},
          threads);
}

// out of bool, x of its size, y of its size or one number: all contiguous, x and y both of int32 or
// both of int64; the comparison's code in a chain.
void run_comparison(const KernelTensor* t, const double* n, int threads) {
  const auto kind =
      static_cast<Comparison>(static_cast<int>(n[0]) - static_cast<int>(ChainCode::Eq));
  if (t[1].element == KernelElement::Int32) {
    run_comparison_of<std::int32_t>(kind, t, threads);
  } else {
    run_comparison_of<std::int64_t>(kind, t, threads);
  }
}

// What a kernel throws, as text.
template <auto kRun>
int told(const KernelTensor* tensors, const double* numbers, int threads, char* text,
         std::size_t text_bytes) {
  try {
    if constexpr (std::is_void_v<decltype(kRun(tensors, numbers, threads))>) {
      count_call();
      kRun(tensors, numbers, threads);
      return 0;
    } else {
      return kRun(tensors, numbers, threads);
    }
  } catch (const std::exception& error) {
    const std::string_view what = error.what();
    const std::size_t count = std::min(what.size(), text_bytes - 1);
    std::memcpy(text, what.data(), count);
    text[count] = '\0';
    return -1;
  }
}

struct Row {
  std::string_view name;
  KernelCall call;
};

constexpr Row kRows[] = {
    {"matmul", told<run_matmul>},
    {"adam", told<run_adam>},
    {"chain", told<run_chain>},
    {"choice", told<run_choice>},
    {"comparison", told<run_comparison>},
    {"attention", told<run_attention>},
    {"attention_backward", told<run_attention_backward>},
    {"recurrent", told<run_recurrent>},
    {"recurrent_backward", told<run_recurrent_backward>},
    {"rms_norm", told<run_rms_norm>},
    {"rms_norm_backward", told<run_rms_norm_backward>},
    {"batch_norm", told<run_batch_norm>},
    {"batch_norm_backward", told<run_batch_norm_backward>},
    {"cumsum", told<run_cumsum>},
    {"count_true", told<run_count_true>},
    {"places", told<run_places>},
    {"truth", told<run_truth>},
    {"spread", told<run_spread>},
    {"sort", told<run_sort>},
    {"strided_copy", told<run_strided_copy>},
    {"topk", told<run_topk>},
};

}  // namespace
}  // namespace gt

// Calls work(context, task) for each task in [0, tasks), on at most `threads` threads that stay.
extern "C" __attribute__((visibility("default"))) void gt_run_tasks(std::int64_t tasks, int threads,
                                                                    void (*work)(void* context,
                                                                                 std::int64_t task),
                                                                    void* context) {
  gt::run_tasks(tasks, threads, work, context);
}

// The kernel of this name; null where there is none.
extern "C" __attribute__((visibility("default"))) gt::KernelCall gt_kernel_call(const char* name) {
  for (const gt::Row& row : gt::kRows) {
    if (row.name == name) {
      return row.call;
    }
  }
  return nullptr;
}
