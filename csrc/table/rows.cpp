// Rows along the last dimension, each computed by itself: softmax, cross-entropy and their
// gradients. Which calls the kernels take.
#include <algorithm>

#include "cpu/array_path.h"
#include "table/kernel.h"

namespace gt {
namespace {

bool are_alike(const TensorView& one, const TensorView& other) {
  return std::ranges::equal(sizes_of(one), sizes_of(other));
}

bool is_last(const TensorView& view, std::int64_t dim) {
  return view.rank > 0 && (dim == -1 || dim == view.rank - 1);
}

struct Rows {
  explicit Rows(const TensorView& view)
      : columns(static_cast<std::size_t>(view.size(-1))),
        count(columns == 0 ? 0 : count_of(view) / columns) {}

  std::size_t columns, count;
};

// self, dim, dtype.
template <auto kLoop>
struct SoftmaxCall {
  explicit SoftmaxCall(Arguments& from)
      : self(from.tensor()), dim(from.integer()), dtype(from.optional_text()) {}

  bool is_valid() const { return is_row_major(self) && is_last(self, dim) && !dtype; }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const Rows rows(self);
    (array_path().*kLoop)(floats(self), results.floats(sizes_of(self)), rows.count, rows.columns);
    return true;
  }

  TensorView self;
  std::int64_t dim;
  std::optional<std::string_view> dtype;
};

// grad, of any strides, out, dim.
template <auto kLoop>
struct SoftmaxBackwardCall {
  explicit SoftmaxBackwardCall(Arguments& from)
      : grad(from.tensor()), out(from.tensor()), dim(from.integer()) {}

  bool is_valid() const {
    return is_float32(grad) && is_row_major(out) && is_last(out, dim) && are_alike(grad, out);
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const RowMajor slopes(grad, results.threads());
    float* of_operand = results.floats(sizes_of(out));
    const Rows rows(out);
    for (std::size_t at = 0; at < rows.count * rows.columns; at += rows.columns) {
      (array_path().*kLoop)(slopes.floats() + at, floats(out) + at, of_operand + at, rows.columns);
    }
    return true;
  }

  TensorView grad, out;
  std::int64_t dim;
};

// Classes of samples, [n, classes], and the target of each; without weights of classes and
// smoothing.
struct Classes {
  // `scores` are those of the samples, or their log-probabilities.
  explicit Classes(Arguments& from, const TensorView& scores)
      : scores(scores), target(from.tensor()), weight(from.optional_tensor()) {}

  bool are_valid(double label_smoothing) const {
    return is_row_major(scores) && scores.rank == 2 && !scores.is_empty() && !weight &&
           label_smoothing == 0 && target.element == Element::kInt64 && target.rank == 1 &&
           target.size(0) == scores.size(0);
  }

  TensorView scores, target;
  std::optional<TensorView> weight;
};

// The targets in a row.
class Targets {
 public:
  Targets(const TensorView& target, int threads) : targets_(target, threads) {}

  std::int64_t operator[](std::size_t row) const {
    return static_cast<const std::int64_t*>(targets_.data())[row];
  }

 private:
  RowMajor targets_;
};

// self, target, weight, reduction, ignore_index, label_smoothing. Makes the loss,
// log-probabilities, and the number of samples that count.
struct CrossEntropyCall {
  explicit CrossEntropyCall(Arguments& from)
      : classes(from, from.tensor()),
        reduction(from.optional_text().value_or("")),
        ignore_index(from.integer()),
        label_smoothing(from.number()) {}

  bool is_valid() const { return classes.are_valid(label_smoothing) && !reduction.empty(); }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const TensorView& x = classes.scores;
    const Rows rows(x);
    const Targets targets(classes.target, results.threads());
    const bool is_each = reduction == "none";
    std::vector<float> own(is_each ? 0 : rows.count);
    float* loss = results.floats(is_each ? sizes_of(classes.target) : Sizes{});
    float* log_probs = results.floats(sizes_of(x));
    float* total = results.floats({});
    array_path().log_softmax(floats(x), log_probs, rows.count, rows.columns);
    float* losses = is_each ? loss : own.data();
    std::size_t counted = 0;
    for (std::size_t row = 0; row < rows.count; ++row) {
      const bool counts = targets[row] != ignore_index;
      const auto place = static_cast<std::size_t>(targets[row]);
      if (counts && place >= rows.columns) {  // a negative one is too large
        return false;
      }
      losses[row] = counts ? -log_probs[row * rows.columns + place] : 0.0F;
      counted += counts ? 1 : 0;
    }
    *total = is_each ? 0.0F : static_cast<float>(counted);
    if (!is_each) {
      const auto sum = array_path().reductions[static_cast<std::size_t>(Reduce::kSum)].row;
      *loss = reduction == "mean" ? sum(losses, rows.count) / *total : sum(losses, rows.count);
    }
    return true;
  }

  Classes classes;
  std::string_view reduction;
  std::int64_t ignore_index;
  double label_smoothing;
};

// grad, log_probs, target, weight, total_weight, reduction, ignore_index, label_smoothing; then,
// for a shard of the classes alone, its place among them.
struct CrossEntropyBackwardCall {
  explicit CrossEntropyBackwardCall(Arguments& from)
      : grad(from.tensor()),
        classes(from, from.tensor()),
        total(from.tensor()),
        reduction(from.optional_text().value_or("")),
        ignore_index(from.integer()),
        label_smoothing(from.number()),
        is_whole(from.has_none_left()) {}

  bool is_valid() const {
    const bool is_one = grad.elements() == 1 && grad.rank <= 1;
    return classes.are_valid(label_smoothing) && !reduction.empty() && is_whole &&
           are_float32(grad, total) && total.elements() == 1 &&
           (is_one || are_alike(grad, classes.target));
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const Rows rows(classes.scores);
    const Targets targets(classes.target, results.threads());
    const RowMajor slopes(grad, results.threads());
    const std::size_t step = grad.elements() == 1 ? 0 : 1;
    float* out = results.floats(sizes_of(classes.scores));
    for (std::size_t row = 0; row < rows.count; ++row) {
      const std::int64_t place = targets[row] == ignore_index ? -1 : targets[row];
      if (place >= static_cast<std::int64_t>(rows.columns)) {
        return false;
      }
      const float slope = slopes.floats()[row * step];
      array_path().cross_entropy_backward(floats(classes.scores) + row * rows.columns, place,
                                          reduction == "mean" ? slope / *floats(total) : slope,
                                          out + row * rows.columns, rows.columns);
    }
    return true;
  }

  TensorView grad;
  Classes classes;
  TensorView total;
  std::string_view reduction;
  std::int64_t ignore_index;
  double label_smoothing;
  bool is_whole;
};

// Squared errors of float32 of one shape and any strides.
struct Errors {
  explicit Errors(Arguments& from) : self(from.tensor()), target(from.tensor()) {}

  bool are_valid() const {
    return are_float32(self, target) && are_alike(self, target) && !self.is_empty();
  }
  std::size_t count() const { return count_of(self); }

  // out = self - target.
  void subtract(float* out, int threads) const {
    const RowMajor x(self, threads), y(target, threads);
    for (std::size_t at = 0; at < count(); ++at) {
      out[at] = x.floats()[at] - y.floats()[at];
    }
  }

  TensorView self, target;
};

// self, target, reduction.
struct MseLossCall {
  explicit MseLossCall(Arguments& from)
      : errors(from), reduction(from.optional_text().value_or("")) {}

  bool is_valid() const { return errors.are_valid() && !reduction.empty(); }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const bool is_each = reduction == "none";
    std::vector<float> own(is_each ? 0 : errors.count());
    float* loss = results.floats(is_each ? sizes_of(errors.self) : Sizes{});
    float* squares = is_each ? loss : own.data();
    errors.subtract(squares, results.threads());
    std::for_each_n(squares, errors.count(), [](float& one) { one *= one; });
    if (!is_each) {
      const auto sum = array_path().reductions[static_cast<std::size_t>(Reduce::kSum)].row;
      const auto count = static_cast<float>(reduction == "mean" ? errors.count() : 1);
      *loss = sum(squares, errors.count()) / count;
    }
    return true;
  }

  Errors errors;
  std::string_view reduction;
};

// grad, self, target, reduction.
struct MseLossBackwardCall {
  explicit MseLossBackwardCall(Arguments& from)
      : grad(from.tensor()), errors(from), reduction(from.optional_text().value_or("")) {}

  bool is_valid() const {
    return errors.are_valid() && is_float32(grad) && !reduction.empty() &&
           (reduction == "none" ? are_alike(grad, errors.self) : grad.rank == 0);
  }
  bool pays() const { return true; }
  bool run(Results& results) const {
    const RowMajor slopes(grad, results.threads());
    const std::size_t step = reduction == "none" ? 1 : 0;
    const auto count = static_cast<double>(errors.count());
    const auto scale = static_cast<float>(reduction == "mean" ? 2 / count : 2);
    float* out = results.floats(sizes_of(errors.self));
    errors.subtract(out, results.threads());
    for (std::size_t at = 0; at < errors.count(); ++at) {
      out[at] *= slopes.floats()[at * step] * scale;
    }
    return true;
  }

  TensorView grad;
  Errors errors;
  std::string_view reduction;
};

constexpr KernelRow kRows[] = {
    {"softmax", 1, run_kernel<SoftmaxCall<&ArrayPath::softmax>>},
    {"log_softmax", 1, run_kernel<SoftmaxCall<&ArrayPath::log_softmax>>},
    {"softmax_backward", 1, run_kernel<SoftmaxBackwardCall<&ArrayPath::softmax_backward>>},
    {"log_softmax_backward", 1, run_kernel<SoftmaxBackwardCall<&ArrayPath::log_softmax_backward>>},
    {"cross_entropy", 3, run_kernel<CrossEntropyCall>},
    {"cross_entropy_backward", 1, run_kernel<CrossEntropyBackwardCall>},
    {"mse_loss", 1, run_kernel<MseLossCall>},
    {"mse_loss_backward", 1, run_kernel<MseLossBackwardCall>},
};

}  // namespace

std::span<const KernelRow> row_kernels() { return kRows; }

}  // namespace gt
