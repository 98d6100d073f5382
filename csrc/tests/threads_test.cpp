// Runs ranks as threads of one process whose kernels use several threads each. The thread sanitizer
// must report no race, and the values must equal those of one thread.
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/pool.h"
#include "cpu/array_path.h"
#include "cpu/attention/attention.h"
#include "cpu/batch_norm.h"
#include "cpu/convolution/convolution.h"
#include "cpu/dims.h"
#include "cpu/matmul/matmul.h"
#include "cpu/norms.h"
#include "cpu/pooling/max_pool.h"
#include "cpu/random_fill.h"
#include "cpu/recurrent/recurrent.h"
#include "cpu/updates.h"

namespace gt {
namespace {

constexpr int kRanks = 4;
constexpr int kRounds = 6;
constexpr int kThreads = 3;

// A contiguous array with its shape.
class Array {
 public:
  Array(Element element, Shape shape) : element_(element), shape_(std::move(shape)) {
    std::int64_t count = 1;
    for (std::size_t dim = shape_.size(); dim-- > 0;) {
      strides_.insert(strides_.begin(), count);
      count *= shape_[dim];
    }
    bytes_.resize(static_cast<std::size_t>(count) * element_bytes(element));
  }

  static Array random(Shape shape, std::uint64_t seed, Element element = Element::kFloat32) {
    Array made(element, shape);
    const Shape start(shape.size(), 0);
    fill_uniform({made.bytes_.data(), made.element_, Box("test", shape, shape, start), 1},
                 {seed, 0}, -1, 1);
    return made;
  }

  // A view of this matrix with its dims swapped, which is not contiguous.
  Array transposed() const {
    Array made = *this;
    std::swap(made.shape_[0], made.shape_[1]);
    std::swap(made.strides_[0], made.strides_[1]);
    return made;
  }

  TensorView view() const {
    return {const_cast<char*>(bytes_.data()), element_, static_cast<int>(shape_.size()),
            shape_.data(), strides_.data()};
  }
  float* floats() { return reinterpret_cast<float*>(bytes_.data()); }
  const float* floats() const { return reinterpret_cast<const float*>(bytes_.data()); }
  const std::vector<char>& bytes() const { return bytes_; }
  std::size_t count() const { return bytes_.size() / element_bytes(element_); }

 private:
  Element element_;
  Shape shape_;
  Shape strides_;
  std::vector<char> bytes_;
};

// Returns the bytes of all arrays that a kernel writes on that many threads, joined. Operands are
// shared by all ranks.
using Kernel = std::function<std::vector<char>(int threads)>;

std::vector<char> joined(std::initializer_list<const Array*> arrays) {
  std::vector<char> all;
  for (const Array* array : arrays) {
    all.insert(all.end(), array->bytes().begin(), array->bytes().end());
  }
  return all;
}

Kernel product(const Array& a, const Array& b, Element element = Element::kFloat32) {
  return [=](int threads) {
    const Array out(element, {a.view().size(0), b.view().size(1)});
    const MatmulCall call{out.view(), a.view(), b.view(), nullptr, nullptr, {}, threads};
    check_matmul(call);
    matmul(call);
    return joined({&out});
  };
}

Kernel product_of_rows(std::int64_t rows, Element element) {
  return product(Array::random({rows, 130}, 1, element), Array::random({130, 200}, 2, element),
                 element);
}

// A product of few rows with weights stored as in a linear layer, large enough for several tasks.
Kernel product_with_weights(std::int64_t rows, Element element) {
  return product(Array::random({rows, 130}, 1, element),
                 Array::random({2000, 130}, 2, element).transposed(), element);
}

Kernel attention_and_gradient() {
  const Shape shape{2, 2, 70, 16};
  const Array query = Array::random(shape, 3);
  const Array key = Array::random(shape, 4);
  const Array value = Array::random(shape, 5);
  const Array grad = Array::random(shape, 6);
  return [=](int threads) {
    const Array output(Element::kFloat32, shape);
    const Array logsumexp(Element::kFloat32, {2, 2, 70});
    AttentionCall call{output.view(), logsumexp.view(), query.view(), key.view(), value.view()};
    call.is_causal = true;
    call.scale = 0.25;
    call.threads = threads;
    check_attention(call);
    attention(call);
    const Array grads[] = {
        {Element::kFloat32, shape}, {Element::kFloat32, shape}, {Element::kFloat32, shape}};
    const AttentionGradient gradient{grad.view(), grads[0].view(), grads[1].view(),
                                     grads[2].view()};
    check_attention_gradient(call, gradient);
    attention_backward(call, gradient);
    return joined({&output, &logsumexp, &grads[0], &grads[1], &grads[2]});
  };
}

Kernel gru() {
  constexpr std::int64_t kSteps = 3, kRows = 9, kUnits = 20, kGates = 3;
  const Array gates = Array::random({kSteps, kRows, kGates * kUnits}, 7);
  const Array hidden = Array::random({kRows, kUnits}, 8);
  const Array bias = Array::random({kGates * kUnits}, 9);
  const Array weight = Array::random({kGates * kUnits, kUnits}, 10);
  return [=](int threads) {
    Array output(Element::kFloat32, {kSteps, kRows, kUnits});
    Array activations(Element::kFloat32, {kSteps, kRows, 4 * kUnits});
    RecurrentForward in{};
    in.gates = gates.floats();
    in.hidden = hidden.floats();
    in.bias = bias.floats();
    in.output = output.floats();
    in.activations = activations.floats();
    recurrent_forward(Recurrence::kGru, {kSteps, kRows, kUnits, false}, in, weight.floats(),
                      threads);
    return joined({&output, &activations});
  };
}

Kernel pooling() {
  const Array input = Array::random({6, 33, 31}, 11);
  return [input](int threads) {
    const Array out(Element::kFloat32, {6, 16, 15});
    const Array indices(Element::kInt64, {6, 16, 15});
    max_pool({out.view(), indices.view(), input.view(), {3, 2, 0, 1}, {3, 2, 0, 1}, threads});
    return joined({&out, &indices});
  };
}

Kernel convolution() {
  constexpr std::int64_t kSide = 24, kChannels = 5, kFilters = 7, kBatch = 3;
  const Array input = Array::random({kBatch, kChannels, kSide, kSide}, 12);
  const Array weight = Array::random({kFilters, kChannels, 3, 3}, 13);
  return [input, weight](int threads) {
    Array out(Element::kFloat32, {kBatch, kFilters, kSide, kSide});
    Array input_grad(Element::kFloat32, {kBatch, kChannels, kSide, kSide});
    Array weight_grad(Element::kFloat32, {kFilters, kChannels, 3, 3});
    const Convolution call{
        kBatch,         1,      {kChannels, kSide, kSide}, kFilters, {3, 3, 1, 1, 1, 1, 1, 1},
        {kSide, kSide}, threads};
    convolve(call, input.floats(), weight.floats(), nullptr, out.floats());
    convolve_input_grad(call, out.floats(), weight.floats(), input_grad.floats());
    convolve_weight_grad(call, out.floats(), input.floats(), weight_grad.floats());
    return joined({&out, &input_grad, &weight_grad});
  };
}

Kernel random_numbers() {
  return [](int threads) {
    const Shape shape{300'000};
    const Array out(Element::kFloat32, shape);
    fill_normal({out.view().data, Element::kFloat32, Box("test", shape, shape, {0}), threads},
                {12, 0}, 0, 1);
    return joined({&out});
  };
}

// Loops over arrays run on one thread: ranks share only the choice of instruction set.
Kernel array_loops() {
  constexpr std::size_t kColumns = 500;
  const Array x = Array::random({20, kColumns}, 14);
  const Array grad = Array::random({20, kColumns}, 15);
  return [=](int /*threads*/) {
    const ArrayPath& path = array_path();
    Array function = x, gradient = x, softmax = x, param = x, momentum = grad;
    path.unary[static_cast<std::size_t>(Unary::kGelu)](x.floats(), function.floats(), x.count());
    path.unary_backward[static_cast<std::size_t>(UnaryBackward::kGelu)](
        grad.floats(), x.floats(), gradient.floats(), x.count());
    for (std::size_t at = 0; at < x.count(); at += kColumns) {
      path.softmax(x.floats() + at, softmax.floats() + at, 1, kColumns);
    }
    const SgdStep step{.lr = 0.1F,
                       .momentum = 0.9F,
                       .rest_dampening = 1,
                       .weight_decay = 0.01F,
                       .sign = 1,
                       .nesterov = false,
                       .first = false};
    path.sgd(param.floats(), grad.floats(), momentum.floats(), step, param.count());
    return joined({&function, &gradient, &softmax, &param, &momentum});
  };
}

// A step over a parameter of several tasks, the last one not full.
Kernel adam_step_of_a_parameter() {
  const Array param = Array::random({100'003}, 16);
  const Array grad = Array::random({100'003}, 17);
  return [=](int threads) {
    Array stepped = param, first = grad, second(Element::kFloat32, {100'003});
    const AdamNumbers numbers{.lr = 0.01,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .eps = 1e-8,
                              .weight_decay = 0.1,
                              .step = 3,
                              .decoupled = true,
                              .maximize = false};
    adam({stepped.floats(), grad.floats(), first.floats(), second.floats(), nullptr, param.count()},
         adam_step(numbers), threads);
    return joined({&stepped, &first, &second});
  };
}

// Rows of several tasks, the last one not full.
Kernel rms_norm_and_gradient() {
  constexpr std::size_t kRows = 333, kColumns = 129;
  const Array x = Array::random({kRows, kColumns}, 18);
  const Array grad = Array::random({kRows, kColumns}, 19);
  const Array weight = Array::random({kColumns}, 20);
  return [=](int threads) {
    Array out = x, x_grad = x, weight_grad = weight, rstd(Element::kFloat32, {kRows});
    rms_norm({x.floats(), weight.floats(), 1e-6, out.floats(), rstd.floats(), kRows, kColumns},
             threads);
    rms_norm_backward({grad.floats(), x.floats(), rstd.floats(), weight.floats(), x_grad.floats(),
                       weight_grad.floats(), kRows, kColumns},
                      threads);
    return joined({&out, &rstd, &x_grad, &weight_grad});
  };
}

// Channels of several tasks, beside each other and as columns.
Kernel batch_norm_and_gradient() {
  const Array x = Array::random({30, 40, 33}, 21), grad = Array::random({30, 40, 33}, 22);
  const Array weight = Array::random({40 * 33}, 23);
  return [=](int threads) {
    std::vector<char> all;
    for (const ChannelShape& shape : {ChannelShape{30, 40, 33}, ChannelShape{30, 40 * 33, 1}}) {
      Array out = x, x_grad = x, mean = weight, rstd = weight, var = weight;
      Array weight_grad = weight, bias_grad = weight;
      batch_norm({x.floats(), weight.floats(), weight.floats(), 1e-5, out.floats(), mean.floats(),
                  rstd.floats(), var.floats(), shape},
                 threads);
      batch_norm_backward({grad.floats(), x.floats(), mean.floats(), rstd.floats(), weight.floats(),
                           x_grad.floats(), weight_grad.floats(), bias_grad.floats(), shape},
                          threads);
      const auto made = joined({&out, &mean, &rstd, &var, &x_grad, &weight_grad, &bias_grad});
      all.insert(all.end(), made.begin(), made.end());
    }
    return all;
  };
}

// Rows of several tasks, and rows of several parts.
Kernel loops_along_a_dimension() {
  const DimShape shapes[] = {{333, 129, 1}, {2, 100001, 1}, {3, 40, 1030}};
  const Array x = Array::random({3, 40, 1030 * 2}, 21);
  return [=](int threads) {
    Array sums = x, spreads = x, found(Element::kInt64, {5000}), truths(Element::kBool, {5000});
    auto* const flags = static_cast<std::uint8_t*>(truths.view().data);
    std::vector<char> written;
    for (const DimShape& shape : shapes) {
      cumsum(x.floats(), sums.floats(), shape, threads);
      places(Place::kLargest, x.floats(), static_cast<std::int64_t*>(found.view().data), shape,
             threads);
      truth(Truth::kAll, x.floats(), flags, shape, threads);
      spread({1.0, true}, x.floats(), spreads.floats(), shape, threads);
      const std::vector<char> bytes = joined({&sums, &spreads, &found, &truths});
      written.insert(written.end(), bytes.begin(), bytes.end());
    }
    return written;
  };
}

// Each task of each call runs once, however the calls of several ranks meet.
Kernel tasks() {
  return [](int threads) {
    constexpr std::int64_t kTasks = 40;
    std::vector<char> ran(kTasks);
    for (int call = 0; call < 300; ++call) {
      run_tasks(kTasks, threads, [&](std::int64_t task) { ++ran[static_cast<std::size_t>(task)]; });
    }
    return ran;
  };
}

// True if the result of every rank equals that of one thread.
bool agrees(const char* name, const Kernel& kernel) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<char> expected = kernel(1);
  std::atomic<int> different{0};
  std::barrier<> together(kRanks);
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        together.arrive_and_wait();
        different += kernel(kThreads) == expected ? 0 : 1;
      }
    });
  }
  ranks.clear();  // joins
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::printf("%-24s %5.1f s, %d of %d results are not those of one thread\n", name, taken.count(),
              different.load(), kRanks * kRounds);
  return different == 0;
}

}  // namespace
}  // namespace gt

int main() {
  struct Row {
    const char* name;
    gt::Kernel kernel;
  };
  const Row rows[] = {
      {"tasks", gt::tasks()},
      {"product", gt::product_of_rows(300, gt::Element::kFloat32)},
      {"product of few rows", gt::product_of_rows(4, gt::Element::kFloat32)},
      {"few rows by weights", gt::product_with_weights(4, gt::Element::kFloat32)},
      {"bfloat16 product", gt::product_of_rows(300, gt::Element::kBfloat16)},
      {"bfloat16, few rows", gt::product_of_rows(8, gt::Element::kBfloat16)},
      {"bfloat16, by weights", gt::product_with_weights(8, gt::Element::kBfloat16)},
      {"attention and gradient", gt::attention_and_gradient()},
      {"GRU", gt::gru()},
      {"max_pool", gt::pooling()},
      {"convolution", gt::convolution()},
      {"random numbers", gt::random_numbers()},
      {"loops over arrays", gt::array_loops()},
      {"step of Adam", gt::adam_step_of_a_parameter()},
      {"RMS norm and gradient", gt::rms_norm_and_gradient()},
      {"batch norm and gradient", gt::batch_norm_and_gradient()},
      {"loops along a dimension", gt::loops_along_a_dimension()},
  };
  bool all_agree = true;
  for (const Row& row : rows) {
    all_agree = gt::agrees(row.name, row.kernel) && all_agree;
  }
  return all_agree ? 0 : 1;
}
