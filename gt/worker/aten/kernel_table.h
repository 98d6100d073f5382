// The entry to every CPU kernel of gt._kernels: plain C, so that neither the ATen helper nor
// gt._kernels is linked against the other. csrc/table has the kernels, each with the calls it
// takes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gt {

// Numbered as the elements of csrc/core/element.h. Other: a dtype, a device or a layout that no
// kernel reads.
enum class KernelElement : int32_t {
  Bool,
  Int32,
  Int64,
  Uint32,
  Bfloat16,
  Float16,
  Float32,
  Float64,
  Uint8,
  Int8,
  Int16,
  Other
};

// A tensor in the host's memory, with strides in elements. An absent one has no sizes.
struct KernelTensor {
  void* data;
  const int64_t* sizes;
  const int64_t* strides;
  int32_t dims;
  KernelElement element = KernelElement::Float32;
};

enum class ArgumentKind : int32_t { None, Tensor, Integer, Real, Integers, Text };

// One argument of a call. `integer` also holds bools; `text` ends with a zero byte.
struct KernelArgument {
  ArgumentKind kind = ArgumentKind::None;
  union {
    KernelTensor tensor;
    int64_t integer;
    double real;
    struct {
      const int64_t* numbers;
      size_t count;
    } integers;
    const char* text;
  };

  KernelArgument() : integer(0) {}
};

// Services of a kernel's caller.
struct KernelCaller {
  void* context;
  // Makes the call's next result, contiguous, and writes the address of its elements; returns 0, or
  // -1 if the caller has no memory: it keeps the reason.
  int (*make_result)(void* context, KernelElement element, const int64_t* sizes, int32_t dims,
                     void** data);
  // Largest number of threads for kernels: that of the caller's other kernels at the moment.
  int32_t threads;
  // Largest number of threads for products and updates, whose work is long enough to wake any
  // number.
  int32_t threads_most;
  // True for GT_KERNELS=on: a kernel runs every call that it can, also where it is slower.
  int32_t takes_all;
  // True if MKL computes the caller's other products.
  int32_t has_mkl;
};

// Status codes in place of the number of results.
constexpr int NOT_TAKEN = -1;
constexpr int KERNEL_FAILED = -2;
constexpr int KERNEL_HAS_NO_MEMORY = -3;

// Runs one call. Returns the number of results; NOT_TAKEN, with nothing written to an operand, if
// the call is for another implementation; KERNEL_HAS_NO_MEMORY; KERNEL_FAILED with the reason in
// `text`, cut to `text_bytes` with its zero byte.
using KernelEntry = int (*)(const KernelArgument* arguments, size_t count,
                            const KernelCaller& caller, char* text, size_t text_bytes);

}  // namespace gt
