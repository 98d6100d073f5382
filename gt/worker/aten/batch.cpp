// Convolutions over a batch, a part of it for each thread. OpenMP's threads, which ATen's kernels
// use, sleep between two kernels, and one convolution is several of them: waking them each time
// costs as much as they save. gt/worker/pytorch/convolution.py does this for Python's kernels.
#include <ATen/Parallel.h>
#include <ATen/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <exception>
#include <mutex>

#include "program.h"

namespace gt {
namespace {

using Values = std::vector<c10::IValue>;

BatchThreads threads{};

// Limits ATen's kernels in the calling thread to one thread during the object's life.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { threads.set(1); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() { threads.set(before_); }

 private:
  int before_;
};

// A call that is cut, and the results of its parts so far.
class CutCall {
 public:
  // `cut`: number of operands with the batch as first dimension. The first result has it too; the
  // other results are sums over the parts.
  CutCall(const c10::OperatorHandle& op, const Values& values, size_t cut, int64_t batch,
          int64_t parts)
      : op_(op), values_(values), cut_(cut), batch_(batch), made_(static_cast<size_t>(parts)) {}

  void run(int64_t part) noexcept {
    try {
      c10::InferenceMode guard;
      OneThread one;
      auto parts = static_cast<int64_t>(made_.size());
      int64_t begin = batch_ * part / parts;
      int64_t end = batch_ * (part + 1) / parts;
      torch::jit::Stack stack = values_;
      for (size_t place = 0; place < cut_; ++place)
        stack[place] = stack[place].toTensor().narrow(0, begin, end - begin);
      op_.callBoxed(stack);
      if (stack[0].isTensor() && stack[0].toTensor().defined())
        whole_like(stack[0].toTensor()).narrow(0, begin, end - begin).copy_(stack[0].toTensor());
      made_[static_cast<size_t>(part)] = std::move(stack);
    } catch (...) {
      std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
  }

  Values results() {
    if (error_) std::rethrow_exception(error_);
    Values results = std::move(made_[0]);
    if (whole_.defined()) results[0] = whole_;
    for (size_t place = 1; place < results.size(); ++place) {
      at::Tensor sum = results[place].toTensor();
      if (!sum.defined()) continue;
      for (size_t part = 1; part < made_.size(); ++part) sum.add_(made_[part][place].toTensor());
    }
    return results;
  }

 private:
  at::Tensor whole_like(const at::Tensor& part) {
    std::lock_guard lock(mutex_);
    if (!whole_.defined()) {
      std::vector<int64_t> sizes = part.sizes().vec();
      sizes[0] = batch_;
      whole_ = at::empty(sizes, part.options().memory_format(part.suggest_memory_format()));
    }
    return whole_;
  }

  const c10::OperatorHandle& op_;
  const Values& values_;
  size_t cut_;
  int64_t batch_;
  std::vector<Values> made_;
  std::mutex mutex_;
  at::Tensor whole_;
  std::exception_ptr error_;
};

}  // namespace

bool run_cut(const c10::OperatorHandle& op, Cut kind, const Values& values, Values& results) {
  bool is_backward = kind == Cut::ConvolutionBackward;
  size_t cut = is_backward ? 2 : 1;
  const at::Tensor& input = values[cut - 1].toTensor();
  const at::Tensor& weight = values[cut].toTensor();
  bool pays = threads.run != nullptr && at::get_num_threads() > 1 && input.is_cpu() &&
              weight.is_cpu() && input.dim() == weight.dim() && input.dim() > 2 &&
              input.size(0) >= threads.most;
  if (!pays) return false;
  CutCall parts(op, values, cut, input.size(0), threads.most);
  threads.run(
      threads.most, threads.most,
      [](void* cut, int64_t part) { static_cast<CutCall*>(cut)->run(part); }, &parts);
  results = parts.results();
  return true;
}

}  // namespace gt

extern "C" {

// Sets the function that runs tasks on gt._kernels' threads, their number, and the function that
// sets OpenMP's number of threads in the calling thread.
void gt_set_threads(decltype(gt::BatchThreads::run) run, int most, void (*set)(int)) {
  gt::threads = {run, most, set};
}
}
