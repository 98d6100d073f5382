// Loops over elements for callers without Python (gt/worker/aten/joined.cpp), by name. No
// computation here.
#include "aten/kernel_calls.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/calls.h"
#include "core/pool.h"
#include "core/tensor_view.h"
#include "cpu/chain.h"
#include "cpu/choices.h"
#include "cpu/comparisons.h"

namespace gt {
namespace {

TensorView view(const KernelTensor& tensor) {
  return {tensor.data, static_cast<Element>(tensor.element), tensor.dims, tensor.sizes,
          tensor.strides};
}

std::size_t elements(const KernelTensor& tensor) {
  std::size_t count = 1;
  for (int dim = 0; dim < tensor.dims; ++dim) {
    count *= static_cast<std::size_t>(tensor.sizes[dim]);
  }
  return count;
}

static_assert(kChainSteps == CHAIN_STEPS_MAX);

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
    steps[at].op = static_cast<LoopOperator>(*n++);
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
      static_cast<Comparison>(static_cast<int>(n[0]) - static_cast<int>(LoopOperator::Eq));
  if (t[1].element == KernelElement::Int32) {
    run_comparison_of<std::int32_t>(kind, t, threads);
  } else {
    run_comparison_of<std::int64_t>(kind, t, threads);
  }
}

// Runs a kernel. An exception's text goes to `text`, and -1 is returned.
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
  LoopCall call;
};

constexpr Row kRows[] = {
    {"chain", told<run_chain>},
    {"choice", told<run_choice>},
    {"comparison", told<run_comparison>},
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
extern "C" __attribute__((visibility("default"))) gt::LoopCall gt_loop_call(const char* name) {
  for (const gt::Row& row : gt::kRows) {
    if (row.name == name) {
      return row.call;
    }
  }
  return nullptr;
}
