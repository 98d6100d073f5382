#include "kernels.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/TensorUtils.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/reshape.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "loops.h"

namespace gt {

KernelSettings kernel_settings;
Loops loops;

namespace {

constexpr size_t ERROR_TEXT_BYTES = 512;

// ATen's dtypes in the order of KernelElement.
constexpr at::ScalarType DTYPES[] = {at::kBool,     at::kInt,  at::kLong,  at::ScalarType::UInt32,
                                     at::kBFloat16, at::kHalf, at::kFloat, at::kDouble,
                                     at::kByte,     at::kChar, at::kShort};

static_assert(std::size(DTYPES) == static_cast<size_t>(KernelElement::Other));

KernelElement element_of(at::ScalarType dtype) {
  auto known = std::find(std::begin(DTYPES), std::end(DTYPES), dtype);
  return static_cast<KernelElement>(known - std::begin(DTYPES));  // Other comes last
}

void set_number(KernelArgument& argument, const Operand& operand) {
  if (operand.kind == Kind::Float) {
    argument.kind = ArgumentKind::Real;
    argument.real = std::bit_cast<double>(operand.bits);
  } else if (operand.kind != Kind::Absent) {
    argument.kind = ArgumentKind::Integer;
    argument.integer = std::bit_cast<int64_t>(operand.bits);
  }
}

bool set_constant(KernelArgument& argument, const Argument& constant) {
  const c10::IValue& value = constant.constant;
  if (value.isBool()) {
    argument.kind = ArgumentKind::Integer;
    argument.integer = value.toBool() ? 1 : 0;
  } else if (value.isInt()) {
    argument.kind = ArgumentKind::Integer;
    argument.integer = value.toInt();
  } else if (value.isDouble()) {
    argument.kind = ArgumentKind::Real;
    argument.real = value.toDouble();
  } else if (value.isString()) {
    argument.kind = ArgumentKind::Text;
    argument.text = value.toStringRef().c_str();
  } else if (value.isIntList()) {
    argument.kind = ArgumentKind::Integers;
    argument.integers = {constant.integers.data(), constant.integers.size()};
  } else {
    return value.isNone();
  }
  return true;
}

void set_tensor(KernelArgument& argument, const c10::TensorImpl& tensor) {
  argument.kind = ArgumentKind::Tensor;
  argument.tensor = kernel_tensor(tensor);
}

// Results of a kernel, made by its caller.
struct Made {
  std::vector<c10::IValue>& results;
  std::exception_ptr error;

  static int make(void* context, KernelElement element, const int64_t* sizes, int32_t dims,
                  void** data) noexcept {
    auto& made = *static_cast<Made*>(context);
    try {
      at::Tensor tensor = at::detail::empty_cpu({sizes, static_cast<size_t>(dims)},
                                                DTYPES[static_cast<size_t>(element)]);
      *data = tensor.mutable_data_ptr();
      made.results.emplace_back(std::move(tensor));
      return 0;
    } catch (...) {
      made.error = std::current_exception();
      return -1;
    }
  }
};

}  // namespace

KernelTensor kernel_tensor(const c10::TensorImpl& tensor) {
  bool is_read = tensor.device_type() == c10::DeviceType::CPU && tensor.layout() == c10::kStrided &&
                 !tensor.key_set().has(c10::DispatchKey::Negative);
  if (!is_read) return {nullptr, nullptr, nullptr, 0, KernelElement::Other};
  return {const_cast<void*>(tensor.data()), tensor.sizes().data(), tensor.strides().data(),
          static_cast<int32_t>(tensor.dim()),
          element_of(c10::typeMetaToScalarType(tensor.dtype()))};
}

bool KernelInput::push(const Argument& argument, const Frame& frame) {
  if (count_ == ARGUMENTS_MAX) return false;
  KernelArgument& pushed = arguments_[count_++];
  const Operand& operand = frame.operands[argument.index];
  switch (argument.source) {
    case Source::Constant:
      return set_constant(pushed, argument);
    case Source::Operand:
    case Source::Wrapped:
      if (operand.kind == Kind::Tensor) {
        set_tensor(pushed, *impl_of(operand));
      } else {
        set_number(pushed, operand);
      }
      return true;
    case Source::Temporary:
      set_tensor(pushed, *frame.temporaries[argument.index].toTensor().unsafeGetTensorImpl());
      return true;
    case Source::SizesOf:
    case Source::DtypeOf:
    case Source::List:
    case Source::OptionalList:
      break;
  }
  return false;
}

bool KernelInput::push(const std::vector<Argument>& arguments, const Frame& frame) {
  return std::all_of(arguments.begin(), arguments.end(),
                     [&](const Argument& argument) { return push(argument, frame); });
}

void KernelInput::push(const at::Tensor& tensor) {
  set_tensor(arguments_[count_++], *tensor.unsafeGetTensorImpl());
}

bool run_kernel(KernelEntry kernel, const KernelInput& input, std::vector<c10::IValue>& results) {
  size_t before = results.size();
  Made made{results, {}};
  KernelCaller caller{&made,
                      &Made::make,
                      at::get_num_threads(),
                      kernel_settings.threads_most,
                      kernel_settings.takes_all ? 1 : 0,
                      at::globalContext().hasMKL() ? 1 : 0};
  char text[ERROR_TEXT_BYTES];
  int status = kernel(input.data(), input.count(), caller, text, sizeof text);
  if (made.error) std::rethrow_exception(made.error);
  // Python then runs the instruction, and raises the error.
  TORCH_CHECK(status != KERNEL_HAS_NO_MEMORY, "out of memory");
  TORCH_CHECK(status != KERNEL_FAILED, text);
  if (status == NOT_TAKEN) results.resize(before);
  return status != NOT_TAKEN;
}

namespace {

// Replaces rows that the kernel leaves open by ATen's results, one call for each row. The kernel's
// last result holds one bool for each row: true for an open one.
void put_open_rows(const Call& call, Frame& frame, size_t first) {
  at::Tensor is_open = frame.temporaries.back().toTensor();
  frame.temporaries.pop_back();
  const bool* open = is_open.const_data_ptr<bool>();
  at::Tensor x = tensor(call.arguments[0], frame);
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  for (int64_t row = 0; row < is_open.numel(); ++row) {
    if (!open[row]) continue;
    torch::jit::Stack stack;
    for (const Argument& argument : call.arguments) stack.push_back(value(argument, frame));
    sizes.back() = x.size(-1);
    stack[0] = x.view({-1, x.size(-1)}).narrow(0, row, 1).view(sizes);
    call.op->callBoxed(stack);
    for (size_t place = 0; place < stack.size(); ++place) {
      at::Tensor whole = frame.temporaries[first + place].toTensor();
      at::Tensor part = stack[place].toTensor();
      whole.view({-1, whole.size(-1)}).narrow(0, row, 1).copy_(part.view({1, part.size(-1)}));
    }
  }
}

}  // namespace

bool execute_kernel(const Call& call, Frame& frame) {
  KernelInput input;
  size_t first = frame.temporaries.size();
  bool is_done = input.push(call.kernel.arguments, frame) &&
                 run_kernel(call.kernel.entry, input, frame.temporaries);
  if (is_done && frame.temporaries.size() - first > call.results) put_open_rows(call, frame, first);
  return is_done;
}

at::Tensor row_major_copy(const at::Tensor& x) {
  KernelInput input;
  input.push(x);
  std::vector<c10::IValue> made;
  bool is_done = kernel_settings.row_major != nullptr && !x.is_contiguous() &&
                 run_kernel(kernel_settings.row_major, input, made);
  if (is_done) return made[0].toTensor();
  return at::clone(x, c10::MemoryFormat::Contiguous);
}

at::Tensor row_major(const at::Tensor& x) { return x.is_contiguous() ? x : row_major_copy(x); }

at::Tensor reshape(const at::Tensor& x, const std::vector<int64_t>& sizes) {
  bool is_stated =
      !x.is_contiguous() &&
      std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size > 0; }) &&
      std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>()) == x.numel() &&
      !at::detail::computeStride(x.sizes(), x.strides(), at::IntArrayRef(sizes));
  return is_stated ? row_major_copy(x).view(sizes) : at::reshape(x, sizes);
}

}  // namespace gt

extern "C" {

// Sets the look-ups of loops and kernels, the number of threads for products and updates, and
// GT_KERNELS=on, with which kernels run every call that they can.
void gt_set_kernels(gt::LoopCall (*find_loop)(const char*),
                    gt::KernelEntry (*find)(const char*, int*), int threads, int takes_all) {
  gt::loops = {find_loop("chain"), find_loop("choice"), find_loop("comparison")};
  int results = 0;
  gt::kernel_settings = {find, find("row_major", &results), threads, takes_all != 0};
}
}
