// What the files that call kernels of GT's own have in common: the kernels, and tensors as they
// take them.
#pragma once

#include <ATen/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <optional>
#include <vector>

#include "kernel_calls.h"
#include "program.h"

namespace gt {

using Values = std::vector<c10::IValue>;

constexpr size_t ERROR_BYTES = 512;

struct Kernels {
  KernelCall matmul = nullptr;
  KernelCall adam = nullptr;
  KernelCall chain = nullptr;
  KernelCall choice = nullptr;
  KernelCall comparison = nullptr;
  KernelCall attention = nullptr;
  KernelCall attention_backward = nullptr;
  KernelCall recurrent = nullptr;
  KernelCall recurrent_backward = nullptr;
  KernelCall rms_norm = nullptr;
  KernelCall rms_norm_backward = nullptr;
  KernelCall batch_norm = nullptr;
  KernelCall batch_norm_backward = nullptr;
  KernelCall cumsum = nullptr;
  KernelCall count_true = nullptr;
  KernelCall places = nullptr;
  KernelCall truth = nullptr;
  KernelCall spread = nullptr;
  KernelCall sort = nullptr;
  KernelCall strided_copy = nullptr;
  KernelCall topk = nullptr;
  // None, until they are there.
  OwnSizes sizes{INT64_MAX, INT64_MAX, INT64_MAX};
  // Of products and updates, whose threads are cheap to wake; the others have as many as ATen's at
  // the moment.
  int threads = 1;
};

extern Kernels kernels;

inline bool is_of(at::ScalarType dtype, const at::Tensor& tensor) {
  return tensor.defined() && tensor.scalar_type() == dtype && tensor.is_cpu() &&
         tensor.layout() == at::kStrided && !tensor.is_neg();
}

inline bool is_float(const at::Tensor& tensor) { return is_of(at::kFloat, tensor); }

inline bool are_floats(std::initializer_list<const at::Tensor*> tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor* one) { return one == nullptr || is_float(*one); });
}

inline KernelTensor given(const at::Tensor& tensor) {
  return {const_cast<void*>(tensor.const_data_ptr()), tensor.sizes().data(),
          tensor.strides().data(), static_cast<int32_t>(tensor.dim())};
}

inline const c10::TensorImpl* impl_of(const Operand& operand) {
  return std::bit_cast<const c10::TensorImpl*>(operand.bits);
}

// The tensor of an operand, counted.
inline at::Tensor counted(const Operand& operand) {
  using Counted = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  return at::Tensor(Counted::reclaim_copy(const_cast<c10::TensorImpl*>(impl_of(operand))));
}

inline KernelTensor absent() { return {nullptr, nullptr, nullptr, 0}; }

inline KernelTensor given(const std::optional<at::Tensor>& tensor) {
  return tensor ? given(*tensor) : absent();
}

inline void call(KernelCall kernel, std::initializer_list<KernelTensor> tensors,
                 std::initializer_list<double> numbers, int threads) {
  char text[ERROR_BYTES];
  int status = kernel(tensors.begin(), numbers.begin(), threads, text, sizeof text);
  TORCH_CHECK(status == 0, text);
}

inline at::Tensor tensor_of(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

inline std::optional<at::Tensor> optional_of(const c10::IValue& value) {
  return value.isTensor() ? std::optional<at::Tensor>(value.toTensor()) : std::nullopt;
}

inline at::Tensor empty(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options());
}

// What becomes of a product before it is written, as csrc/bind/kernel_calls.cpp counts it: zero
// where it is below zero, or where `gate` is not above it.
enum class What { Nothing = 0, Relu = 1, Gate = 2 };

struct Following {
  What what = What::Nothing;
  std::optional<at::Tensor> gate;
};

// left @ right + bias: [..., m, k] and [k, n]; undefined where ATen is to run it.
at::Tensor product(const at::Tensor& left, const at::Tensor& right,
                   const std::optional<at::Tensor>& bias, const Following& following = {});

// False, with nothing done, where the operands are for others.
bool attention(const Values& values, Values& results);
bool attention_backward(const Values& values, Values& results);
bool run_recurrent(Own own, const Values& v, Values& results);
bool rms_norm(const Values& values, Values& results);
bool rms_norm_backward(const Values& values, Values& results);
bool batch_norm(const Values& values, Values& results);
bool batch_norm_backward(const Values& values, Values& results);
bool cumsum(const Values& values, Values& results);
bool count_true(const Values& values, Values& results);
bool places(Own own, const Values& values, Values& results);
bool truth(Own own, const Values& values, Values& results);
bool spread(Own own, const Values& values, Values& results);
bool reshape(const Values& values, Values& results);
bool sort(const Values& values, Values& results);
bool topk(const Values& values, Values& results);

// Elements times steps from which on threads are worth waking, in one pass over memory.
constexpr int64_t SHARED_WORK_MIN = 1 << 18;

// What an instruction of Small::Where or Small::MaskedFill makes of elements of any dtype but
// float32; undefined, with nothing done, where ATen is to run it.
at::Tensor chosen(const Call& call, const Operand* operands);

}  // namespace gt
