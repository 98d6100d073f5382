// Steps of optimizers: which calls the kernels take.
#include "cpu/updates.h"

#include "table/kernel.h"

namespace gt {
namespace {

// Elements of a parameter from which on the kernel's threads, which are cheap to wake, pay.
constexpr std::int64_t kElementsMin = std::int64_t{1} << 17;

// param, grad, exp_avg, exp_avg_sq, lr, beta1, beta2, eps, weight_decay, step, decoupled, maximize:
// one parameter, written in place with its states.
struct AdamCall {
  explicit AdamCall(Arguments& from)
      : param(from.tensor()), grad(from.tensor()), avg(from.tensor()), avg_sq(from.tensor()) {
    numbers.lr = from.number();
    numbers.beta1 = from.number();
    numbers.beta2 = from.number();
    numbers.eps = from.number();
    numbers.weight_decay = from.number();
    numbers.step = from.number();
    numbers.decoupled = from.flag();
    numbers.maximize = from.flag();
  }

  bool is_valid() const {
    for (const TensorView* array : {&param, &grad, &avg, &avg_sq}) {
      if (!is_float32(*array) || !array->is_contiguous() || array->elements() != param.elements()) {
        return false;
      }
    }
    return true;
  }
  bool pays() const { return param.elements() >= kElementsMin; }
  bool run(Results& results) const {
    const auto floats = [](const TensorView& view) { return static_cast<float*>(view.data); };
    adam({floats(param), floats(grad), floats(avg), floats(avg_sq), nullptr,
          static_cast<std::size_t>(param.elements())},
         adam_step(numbers), results.threads_most());
    return true;
  }

  TensorView param, grad, avg, avg_sq;
  AdamNumbers numbers{};
};

constexpr KernelRow kRows[] = {{"adam", 0, run_kernel<AdamCall>}};

}  // namespace

std::span<const KernelRow> update_kernels() { return kRows; }

}  // namespace gt
