#include "cpu/attention/attention.h"

#include <algorithm>

#include "algo/philox.h"
#include "algo/random_parameters.h"
#include "core/pool.h"
#include "core/scratch.h"
#include "cpu/attention/attention_path.h"

namespace gt {
namespace {

// Heads are packed together until their keys and values take about this many numbers.
constexpr std::int64_t kPackedNumbers = 1 << 21;

float* numbers_of(const TensorView& view) { return static_cast<float*>(view.data); }

// The greatest random word that drops a weight.
std::uint32_t dropped_last(double dropout_p) {
  return static_cast<std::uint32_t>(checked_threshold("attention", dropout_p) - 1);
}

class Heads {
 public:
  explicit Heads(const AttentionCall& call)
      : call_(call), across_(call.query.size(1)), count_(call.query.size(0) * across_) {
    if (call.seeds != nullptr) {
      seeds_.step = call.seeds->stride(2);
      seeds_.dropped_last = dropped_last(call.dropout_p);
      seeds_.kept_factor = static_cast<float>(1 / (1 - call.dropout_p));
    }
  }

  std::int64_t count() const { return count_; }

  Rows rows(const TensorView& view, std::int64_t head) const {
    return {numbers_of(view) + offset(view, head), view.stride(2), view.stride(3)};
  }

  Head at(std::int64_t head) const {
    const std::int64_t queries = call_.query.size(2);
    const std::int64_t value_width = call_.value.size(3);
    return {queries,
            call_.key.size(2),
            call_.query.size(3),
            value_width,
            rows(call_.query, head),
            rows(call_.key, head),
            rows(call_.value, head),
            call_.mask == nullptr ? Rows{} : rows(*call_.mask, head),
            seeds(head),
            call_.is_causal,
            static_cast<float>(call_.scale),
            numbers_of(call_.output) + head * queries * value_width,
            numbers_of(call_.logsumexp) + head * queries};
  }

 private:
  std::int64_t offset(const TensorView& view, std::int64_t head) const {
    return head / across_ * view.stride(0) + head % across_ * view.stride(1);
  }

  Seeds seeds(std::int64_t head) const {
    Seeds seeds = seeds_;
    if (call_.seeds != nullptr) {
      seeds.data = static_cast<const std::int64_t*>(call_.seeds->data) + offset(*call_.seeds, head);
    }
    return seeds;
  }

  const AttentionCall& call_;
  const std::int64_t across_;
  const std::int64_t count_;
  Seeds seeds_ = {};
};

// Working memory of a thread, separate from that of other kernels.
Scratch& thread_scratch() {
  static thread_local Scratch scratch;
  return scratch;
}

}  // namespace

void attention_kept(const TensorView& kept, const TensorView& seeds, double dropout_p) {
  const std::uint32_t last = dropped_last(dropout_p);
  auto* to = static_cast<std::uint8_t*>(kept.data);
  const std::int64_t keys = kept.size(3);
  for (std::int64_t query = 0; query < kept.size(0) * kept.size(1) * kept.size(2); ++query) {
    const std::int64_t row = query / kept.size(2);
    const std::int64_t offset = row / kept.size(1) * seeds.stride(0) +
                                row % kept.size(1) * seeds.stride(1) +
                                query % kept.size(2) * seeds.stride(2);
    const auto seed =
        static_cast<std::uint64_t>(static_cast<const std::int64_t*>(seeds.data)[offset]);
    for (std::int64_t key = 0; key < keys; key += 4) {
      std::uint32_t words[4];
      philox_block({seed, 0}, static_cast<std::uint64_t>(key / 4), words);
      for (std::int64_t word = 0; word < std::min<std::int64_t>(4, keys - key); ++word) {
        *to++ = words[word] > last ? 1 : 0;
      }
    }
  }
}

void attention(const AttentionCall& call) {
  const Heads heads(call);
  if (call.logsumexp.is_empty()) {
    return;
  }
  const AttentionPath& path = of_path(kAttention);
  const std::int64_t each = path.packed_numbers(heads.at(0));
  const std::int64_t step =
      std::clamp<std::int64_t>(kPackedNumbers / std::max<std::int64_t>(each, 1), 1, heads.count());
  static thread_local Scratch packed_scratch;
  float* packed = packed_scratch.numbers<float>(step * each);
  const std::int64_t groups = (call.query.size(2) + path.group - 1) / path.group;
  for (std::int64_t first = 0; first < heads.count(); first += step) {
    const std::int64_t count = std::min(step, heads.count() - first);
    if (each > 0) {
      run_tasks(count, call.threads, [&](std::int64_t head) {
        path.pack(heads.at(first + head), packed + head * each);
      });
    }
    run_tasks(count * groups, call.threads, [&](std::int64_t task) {
      const Head head = heads.at(first + task / groups);
      float* work = thread_scratch().numbers<float>(path.forward_numbers(head));
      // Tasks take the last groups first: causal attention spends the most time on them.
      path.forward(head, packed + task / groups * each, (groups - 1 - task % groups) * path.group,
                   work);
    });
  }
}

void attention_backward(const AttentionCall& call, const AttentionGradient& gradient) {
  const Heads heads(call);
  const AttentionPath& path = of_path(kAttention);
  const std::int64_t queries = call.query.size(2) * call.query.size(3);
  const std::int64_t keys = call.key.size(2) * call.key.size(3);
  const std::int64_t values = call.value.size(2) * call.value.size(3);
  run_tasks(heads.count(), call.threads, [&](std::int64_t index) {
    const Head head = heads.at(index);
    float* work = thread_scratch().numbers<float>(path.backward_numbers(head));
    path.backward(
        head,
        {heads.rows(gradient.grad, index), numbers_of(gradient.grad_query) + index * queries,
         numbers_of(gradient.grad_key) + index * keys,
         numbers_of(gradient.grad_value) + index * values},
        work);
  });
}

}  // namespace gt
