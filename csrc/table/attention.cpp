// Attention: which calls the kernels take.
#include "cpu/attention/attention.h"

#include <array>

#include "table/kernel.h"

namespace gt {
namespace {

// The kernel's vectors hold a query in each place: fewer leave most of a vector empty.
constexpr std::int64_t kQueriesMin = 8;

bool has_sizes(const TensorView& view, std::initializer_list<std::int64_t> sizes) {
  return std::ranges::equal(sizes_of(view), sizes);
}

// The operands of both directions: [b, h, t, k], [b, h, s, k], [b, h, s, v].
struct Heads {
  explicit Heads(Arguments& from)
      : query(from.tensor()), key(from.tensor()), value(from.tensor()) {}

  bool are_valid() const {
    if (!are_float32(query, key, value) || query.rank != 4 || key.rank != 4 || value.rank != 4) {
      return false;
    }
    const std::int64_t batch = query.size(0), heads = query.size(1), keys = key.size(2);
    return has_sizes(key, {batch, heads, keys, query.size(3)}) &&
           has_sizes(value, {batch, heads, keys, value.size(3)});
  }
  bool pay() const { return query.size(2) >= kQueriesMin && key.size(2) > 0; }

  TensorView query, key, value;
};

// A mask over all scores [b, h, t, s]: what is missing or of size 1 is repeated by strides of zero.
class WholeMask {
 public:
  WholeMask(const std::optional<TensorView>& mask, const Heads& heads)
      : sizes_{heads.query.size(0), heads.query.size(1), heads.query.size(2), heads.key.size(2)} {
    if (!mask) {
      return;
    }
    for (int back = 1; back <= mask->rank; ++back) {
      strides_[static_cast<std::size_t>(4 - back)] =
          mask->size(-back) == 1 ? 0 : mask->stride(-back);
    }
    view_.emplace(TensorView{mask->data, mask->element, 4, sizes_.data(), strides_.data()});
  }
  WholeMask(const WholeMask&) = delete;
  WholeMask& operator=(const WholeMask&) = delete;

  static bool fits(const TensorView& mask, const Heads& heads) {
    const std::int64_t sizes[] = {heads.query.size(0), heads.query.size(1), heads.query.size(2),
                                  heads.key.size(2)};
    for (int back = 1; back <= std::min(mask.rank, 4); ++back) {
      if (mask.size(-back) != 1 && mask.size(-back) != sizes[4 - back]) {
        return false;
      }
    }
    return is_float32(mask) && mask.rank <= 4;
  }

  const TensorView* view() const { return view_ ? &*view_ : nullptr; }

 private:
  std::array<std::int64_t, 4> sizes_;
  std::array<std::int64_t, 4> strides_{};
  std::optional<TensorView> view_;
};

// Options of both directions: an added mask, one seed for each query under dropout.
struct Options {
  explicit Options(Arguments& from)
      : mask(from.optional_tensor()),
        seeds(from.optional_tensor()),
        is_causal(from.flag()),
        dropout_p(from.number()),
        scale(from.number()) {}

  bool are_valid(const Heads& heads) const {
    const TensorView& query = heads.query;
    const bool has_seeds =
        !seeds || (seeds->element == Element::kInt64 && dropout_p > 0 && dropout_p < 1 &&
                   has_sizes(*seeds, {query.size(0), query.size(1), query.size(2)}));
    return has_seeds && (!mask || WholeMask::fits(*mask, heads));
  }
  AttentionCall call(const Heads& heads, const WholeMask& whole, const TensorView& output,
                     const TensorView& logsumexp, int threads) const {
    return {output,
            logsumexp,
            heads.query,
            heads.key,
            heads.value,
            whole.view(),
            seeds ? &*seeds : nullptr,
            dropout_p,
            is_causal,
            scale,
            threads};
  }

  std::optional<TensorView> mask, seeds;
  bool is_causal;
  double dropout_p, scale;
};

struct ForwardCall {
  explicit ForwardCall(Arguments& from) : heads(from), options(from) {}

  bool is_valid() const { return heads.are_valid() && options.are_valid(heads); }
  bool pays() const { return heads.pay(); }
  bool run(Results& results) const {
    const Sizes rows = sizes_of(heads.query).first(3);
    const std::int64_t sizes[] = {rows[0], rows[1], rows[2], heads.value.size(3)};
    const Contiguous output(results.make(Element::kFloat32, sizes));
    const Contiguous logsumexp(results.make(Element::kFloat32, rows));
    const WholeMask whole(options.mask, heads);
    attention(options.call(heads, whole, output.view(), logsumexp.view(), results.threads()));
    return true;
  }

  Heads heads;
  Options options;
};

// The output and the logarithms of sums are strided where a worker takes its part of what several
// have whole.
struct BackwardCall {
  explicit BackwardCall(Arguments& from)
      : grad(from.tensor()),
        heads(from),
        output(from.tensor()),
        logsumexp(from.tensor()),
        options(from) {}

  bool is_valid() const {
    if (!heads.are_valid() || !are_float32(grad, output, logsumexp)) {
      return false;
    }
    const TensorView& query = heads.query;
    const std::int64_t batch = query.size(0), count = query.size(1), rows = query.size(2);
    const std::int64_t width = heads.value.size(3);
    return has_sizes(grad, {batch, count, rows, width}) &&
           has_sizes(output, {batch, count, rows, width}) &&
           has_sizes(logsumexp, {batch, count, rows}) && options.are_valid(heads);
  }
  bool pays() const { return heads.pay(); }
  bool run(Results& results) const {
    const int threads = results.threads();
    const RowMajor kept(output, threads), sums(logsumexp, threads);
    const Contiguous read({kept.data(), output.element, output.rank, output.shape, nullptr});
    const Contiguous read_sums(
        {sums.data(), logsumexp.element, logsumexp.rank, logsumexp.shape, nullptr});
    const WholeMask whole(options.mask, heads);
    const AttentionCall call = options.call(heads, whole, read.view(), read_sums.view(), threads);
    const Contiguous of_query(results.make(Element::kFloat32, sizes_of(heads.query)));
    const Contiguous of_key(results.make(Element::kFloat32, sizes_of(heads.key)));
    const Contiguous of_value(results.make(Element::kFloat32, sizes_of(heads.value)));
    attention_backward(call, {grad, of_query.view(), of_key.view(), of_value.view()});
    return true;
  }

  TensorView grad;
  Heads heads;
  TensorView output, logsumexp;
  Options options;
};

constexpr KernelRow kRows[] = {
    {"attention", 2, run_kernel<ForwardCall>},
    {"attention_backward", 3, run_kernel<BackwardCall>},
};

}  // namespace

std::span<const KernelRow> attention_kernels() { return kRows; }

}  // namespace gt
