// Checks parameters, walks a box in chunks that stay in the first-level cache, and runs the chosen
// path's loops on each.
#include "cpu/random_fill.h"

#include <algorithm>
#include <cstring>

#include "algo/random_parameters.h"
#include "core/parallel.h"
#include "cpu/random_path.h"

namespace gt {
namespace {

// 4 KiB of words and at most 8 KiB of values.
constexpr std::size_t kChunkBlocks = 256;
static_assert(kChunkBlocks % RandomPath::kBlockGroup == 0);

// The vector paths compute at least 16 or 32 blocks. Up to this number the scalar path is faster:
// rows of 4 float32 take 20 ns instead of 55 (Xeon with AVX-512).
constexpr std::size_t kShortRunBlocks = 4;

// ---- distributions: Value, kPerBlock (values of a block of four words), and a call operator that
// fills whole blocks ----

template <class T>
struct Uniform {
  using Value = T;
  static constexpr std::size_t kPerBlock = 16 / sizeof(T);
  UniformRange<T> range;
  void operator()(const RandomPath& path, const std::uint32_t* words, std::size_t blocks,
                  T* out) const {
    if constexpr (sizeof(T) == sizeof(float)) {
      path.uniform_f32(words, blocks, range, out);
    } else {
      path.uniform_f64(words, blocks, range, out);
    }
  }
};

template <class T>
struct Normal {
  using Value = T;
  static constexpr std::size_t kPerBlock = 16 / sizeof(T);
  NormalShape<T> shape;
  void operator()(const RandomPath& path, const std::uint32_t* words, std::size_t blocks,
                  T* out) const {
    if constexpr (sizeof(T) == sizeof(float)) {
      path.normal_f32(words, blocks, shape, out);
    } else {
      path.normal_f64(words, blocks, shape, out);
    }
  }
};

// A float distribution whose values are rounded to a 16-bit type.
template <class Wide>
struct Rounded {
  using Value = std::uint16_t;
  static constexpr std::size_t kPerBlock = Wide::kPerBlock;
  Wide wide;
  decltype(RandomPath::round_bf16) RandomPath::* round;
  void operator()(const RandomPath& path, const std::uint32_t* words, std::size_t blocks,
                  std::uint16_t* out) const {
    alignas(64) float values[kPerBlock * kChunkBlocks];
    wide(path, words, blocks, values);
    (path.*round)(values, kPerBlock * blocks, out);
  }
};

// Gives the same integers in both types.
template <class T>
struct Integers {
  using Value = T;
  static constexpr std::size_t kPerBlock = 2;
  IntegerRange range;
  void operator()(const RandomPath& path, const std::uint32_t* words, std::size_t blocks,
                  T* out) const {
    if constexpr (sizeof(T) == sizeof(std::int64_t)) {
      path.integers(words, blocks, range, out);
    } else {
      alignas(64) std::int64_t values[kPerBlock * kChunkBlocks];
      path.integers(words, blocks, range, values);
      for (std::size_t i = 0; i < kPerBlock * blocks; ++i) {
        out[i] = static_cast<T>(values[i]);
      }
    }
  }
};

// One of two values, depending on whether the word is below threshold (0 to 2^32).
template <class T>
struct Choice {
  using Value = T;
  static constexpr std::size_t kPerBlock = 4;
  std::uint64_t threshold;
  T below;
  T other;
  void operator()(const RandomPath& path, const std::uint32_t* words, std::size_t blocks,
                  T* out) const {
    const std::size_t count = kPerBlock * blocks;
    if (threshold == 0) {
      std::fill_n(out, count, other);
      return;
    }
    alignas(64) std::uint8_t flags[kPerBlock * kChunkBlocks];
    path.at_most(words, blocks, static_cast<std::uint32_t>(threshold - 1), flags);
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = flags[i] != 0 ? below : other;
    }
  }
};

struct Words {
  using Value = std::uint32_t;
  static constexpr std::size_t kPerBlock = 4;
  void operator()(const RandomPath&, const std::uint32_t* words, std::size_t blocks,
                  std::uint32_t* out) const {
    std::memcpy(out, words, kPerBlock * blocks * sizeof(*out));
  }
};

// ---- runs of a box ----

// Writes `count` consecutive values, from value `skip` of first_block on.
template <class Distribution>
void fill_run(const RandomPath& chosen, Stream stream, const Distribution& distribution,
              std::uint64_t first_block, std::size_t skip, std::size_t count,
              typename Distribution::Value* out) {
  constexpr std::size_t kPerBlock = Distribution::kPerBlock;
  const bool is_short = skip + count <= kPerBlock * kShortRunBlocks;
  const RandomPath& path = is_short ? kScalarRandom : chosen;
  alignas(64) std::uint32_t words[4 * kChunkBlocks];
  alignas(64) typename Distribution::Value values[kPerBlock * kChunkBlocks];
  while (count > 0) {
    const std::size_t blocks = std::min(kChunkBlocks, (skip + count + kPerBlock - 1) / kPerBlock);
    const std::size_t made = std::min(count, blocks * kPerBlock - skip);
    path.philox(stream, first_block, blocks, words);
    if (made == blocks * kPerBlock) {
      distribution(path, words, blocks, out);
    } else {
      distribution(path, words, blocks, values);
      std::memcpy(out, values + skip, made * sizeof(*out));
    }
    first_block += blocks;
    skip = 0;
    count -= made;
    out += made;
  }
}

template <class Distribution>
void fill(const RandomTarget& target, Stream stream, const Distribution& distribution) {
  constexpr auto kPerBlock = static_cast<std::int64_t>(Distribution::kPerBlock);
  const RandomPath& path = random_path();
  auto* data = static_cast<typename Distribution::Value*>(target.data);
  in_parallel(target.box.elements(), target.threads, [&](std::int64_t begin, std::int64_t end) {
    target.box.visit_runs(
        begin, end, [&](std::int64_t local, std::int64_t global, std::int64_t count) {
          fill_run(path, stream, distribution, static_cast<std::uint64_t>(global / kPerBlock),
                   static_cast<std::size_t>(global % kPerBlock), static_cast<std::size_t>(count),
                   data + local);
        });
  });
}

// ---- element types ----

[[noreturn]] void refuse_dtype(const char* op, Element element) {
  throw DtypeError(message(op, ": out has dtype ", element_name(element),
                           ", which this function does not fill"));
}

}  // namespace

void fill_uniform(const RandomTarget& target, Stream stream, double low, double high) {
  check_order(low, high);
  switch (target.element) {
    case Element::kFloat32:
      return fill(target, stream, Uniform<float>{range_f32(low, high)});
    case Element::kFloat64:
      return fill(target, stream, Uniform<double>{range_f64(low, high)});
    case Element::kBfloat16:
      return fill(target, stream,
                  Rounded<Uniform<float>>{{range_bf16(low, high)}, &RandomPath::round_bf16});
    case Element::kFloat16:
      return fill(target, stream,
                  Rounded<Uniform<float>>{{range_f16(low, high)}, &RandomPath::round_f16});
    case Element::kBool:
    case Element::kInt32:
    case Element::kInt64:
    case Element::kUint32:
    case Element::kUint8:
    case Element::kInt8:
    case Element::kInt16:
      refuse_dtype("uniform", target.element);
  }
}

void fill_normal(const RandomTarget& target, Stream stream, double mean, double std) {
  const NormalShape<double> wide = checked_normal(target.element, mean, std);
  const NormalShape<float> narrow{static_cast<float>(mean), static_cast<float>(std)};
  switch (target.element) {
    case Element::kFloat32:
      return fill(target, stream, Normal<float>{narrow});
    case Element::kFloat64:
      return fill(target, stream, Normal<double>{wide});
    case Element::kBfloat16:
      return fill(target, stream, Rounded<Normal<float>>{{narrow}, &RandomPath::round_bf16});
    case Element::kFloat16:
      return fill(target, stream, Rounded<Normal<float>>{{narrow}, &RandomPath::round_f16});
    case Element::kBool:
    case Element::kInt32:
    case Element::kInt64:
    case Element::kUint32:
    case Element::kUint8:
    case Element::kInt8:
    case Element::kInt16:
      refuse_dtype("normal", target.element);
  }
}

void fill_integers(const RandomTarget& target, Stream stream, std::int64_t low, std::int64_t high) {
  const IntegerRange range = checked_integers(target.element, low, high);
  switch (target.element) {
    case Element::kInt64:
      return fill(target, stream, Integers<std::int64_t>{range});
    case Element::kInt32:
      return fill(target, stream, Integers<std::int32_t>{range});
    case Element::kBool:
    case Element::kUint32:
    case Element::kUint8:
    case Element::kInt8:
    case Element::kInt16:
    case Element::kBfloat16:
    case Element::kFloat16:
    case Element::kFloat32:
    case Element::kFloat64:
      refuse_dtype("integers", target.element);
  }
}

void fill_bernoulli(const RandomTarget& target, Stream stream, double p) {
  const std::uint64_t threshold = checked_threshold("bernoulli", p);
  switch (target.element) {
    case Element::kBool:
      return fill(target, stream, Choice<std::uint8_t>{threshold, 1, 0});
    case Element::kInt32:
      return fill(target, stream, Choice<std::int32_t>{threshold, 1, 0});
    case Element::kInt64:
      return fill(target, stream, Choice<std::int64_t>{threshold, 1, 0});
    case Element::kBfloat16:
      return fill(target, stream, Choice<std::uint16_t>{threshold, bfloat16_bits(1), 0});
    case Element::kFloat16:
      return fill(target, stream, Choice<std::uint16_t>{threshold, float16_bits(1), 0});
    case Element::kFloat32:
      return fill(target, stream, Choice<float>{threshold, 1, 0});
    case Element::kFloat64:
      return fill(target, stream, Choice<double>{threshold, 1, 0});
    case Element::kUint32:
    case Element::kUint8:
    case Element::kInt8:
    case Element::kInt16:
      refuse_dtype("bernoulli", target.element);
  }
}

void fill_dropout_mask(const RandomTarget& target, Stream stream, double p) {
  const std::uint64_t threshold = checked_threshold("dropout_mask", p);
  if (target.element != Element::kBool) {
    refuse_dtype("dropout_mask", target.element);
  }
  fill(target, stream, Choice<std::uint8_t>{threshold, 0, 1});
}

void fill_words(std::uint32_t* words, std::size_t count, Stream stream, std::uint64_t first_block) {
  fill_run(random_path(), stream, Words{}, first_block, 0, count, words);
}

}  // namespace gt
