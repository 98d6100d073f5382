// Checks parameters, walks a box in chunks that stay in the first cache, and runs the chosen path's
// loops on each.
#include "cpu/random_fill.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "core/parallel.h"
#include "cpu/random_path.h"

namespace gt {
namespace {

// 4 KiB of words and at most 8 KiB of values.
constexpr std::size_t kChunkBlocks = 256;
static_assert(kChunkBlocks % RandomPath::kBlockGroup == 0);

// The vector paths make at least 16 or 32 blocks. Up to here the scalar one is faster: rows of 4
// float32 take 20 ns rather than 55 (Xeon with AVX-512).
constexpr std::size_t kShortRunBlocks = 4;

// ---- distributions: Value, kPerBlock (values of a block of four words), and a call that makes
// whole blocks ----

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

// The same integers for both types.
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

// One of two values, by whether the word is below threshold (0 to 2^32).
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

// ---- walking ----

// Consecutive values: `count` of them from value `skip` of first_block on.
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

// ---- parameters ----

[[noreturn]] void refuse_dtype(const char* op, Element element) {
  throw DtypeError(message(op, ": out has dtype ", element_name(element),
                           ", which this function does not fill"));
}

// The largest number below the one with these bits, in any IEEE type.
template <class Bits>
Bits next_below(Bits bits) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  if ((bits & ~kSign) == 0) {
    return static_cast<Bits>(kSign | 1);
  }
  return static_cast<Bits>((bits & kSign) != 0 ? bits + 1 : bits - 1);
}

// Adding zero turns -0 into 0.
template <class T>
UniformRange<T> checked_range(Element element, T low, T high, T below) {
  const T span = high - low;
  if (!std::isfinite(low) || !std::isfinite(high) || !std::isfinite(span)) {
    throw std::invalid_argument(message("uniform: low ", low, ", high ", high,
                                        " and high - low must be finite in ",
                                        element_name(element)));
  }
  return {low + T{0}, span, low == high ? low + T{0} : below};
}

UniformRange<double> range_f64(double low, double high) {
  const auto below =
      __builtin_bit_cast(double, next_below(__builtin_bit_cast(std::uint64_t, high)));
  return checked_range(Element::kFloat64, low, high, below);
}

UniformRange<float> range_f32(double low, double high) {
  const auto to = static_cast<float>(high);
  const auto below = __builtin_bit_cast(float, next_below(__builtin_bit_cast(std::uint32_t, to)));
  return checked_range(Element::kFloat32, static_cast<float>(low), to, below);
}

UniformRange<float> range_bf16(double low, double high) {
  const std::uint16_t to = bfloat16_bits(static_cast<float>(high));
  return checked_range(Element::kBfloat16, bfloat16_value(bfloat16_bits(static_cast<float>(low))),
                       bfloat16_value(to), bfloat16_value(next_below(to)));
}

UniformRange<float> range_f16(double low, double high) {
  constexpr double kOverflow = 65520;  // rounds to infinity from here on
  if (std::abs(low) >= kOverflow || std::abs(high) >= kOverflow) {
    throw std::invalid_argument(
        message("uniform: low ", low, " and high ", high, " must be finite in float16"));
  }
  const std::uint16_t to = float16_bits(static_cast<float>(high));
  return checked_range(Element::kFloat16, float16_value(float16_bits(static_cast<float>(low))),
                       float16_value(to), float16_value(next_below(to)));
}

// How many of the 2^32 words are below p * 2^32, so that w * 2^-32 < p for exactly those.
std::uint64_t checked_threshold(const char* op, double p) {
  if (!(p >= 0 && p <= 1)) {
    throw std::invalid_argument(message(op, ": p ", p, " is not in [0, 1]"));
  }
  return static_cast<std::uint64_t>(std::ceil(p * 0x1p32));
}

}  // namespace

void fill_uniform(const RandomTarget& target, Stream stream, double low, double high) {
  if (!(low <= high)) {
    throw std::invalid_argument(message("uniform: low ", low, " is not at most high ", high));
  }
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
      refuse_dtype("uniform", target.element);
  }
}

void fill_normal(const RandomTarget& target, Stream stream, double mean, double std) {
  const NormalShape<float> narrow{static_cast<float>(mean), static_cast<float>(std)};
  const bool wide = target.element == Element::kFloat64;
  if (!(std >= 0) || !(wide ? std::isfinite(mean) && std::isfinite(std)
                            : std::isfinite(narrow.mean) && std::isfinite(narrow.std))) {
    throw std::invalid_argument(message("normal: mean ", mean, " and std ", std,
                                        " must be finite in ", wide ? "float64" : "float32",
                                        ", std not negative"));
  }
  switch (target.element) {
    case Element::kFloat32:
      return fill(target, stream, Normal<float>{narrow});
    case Element::kFloat64:
      return fill(target, stream, Normal<double>{{mean, std}});
    case Element::kBfloat16:
      return fill(target, stream, Rounded<Normal<float>>{{narrow}, &RandomPath::round_bf16});
    case Element::kFloat16:
      return fill(target, stream, Rounded<Normal<float>>{{narrow}, &RandomPath::round_f16});
    case Element::kBool:
    case Element::kInt32:
    case Element::kInt64:
    case Element::kUint32:
      refuse_dtype("normal", target.element);
  }
}

void fill_integers(const RandomTarget& target, Stream stream, std::int64_t low, std::int64_t high) {
  if (low >= high) {
    throw std::invalid_argument(message("integers: low ", low, " is not less than high ", high));
  }
  const IntegerRange range{low, static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low)};
  switch (target.element) {
    case Element::kInt64:
      return fill(target, stream, Integers<std::int64_t>{range});
    case Element::kInt32:
      if (low < INT32_MIN || high - 1 > INT32_MAX) {
        throw std::invalid_argument(
            message("integers: low ", low, " and high ", high, " do not fit int32"));
      }
      return fill(target, stream, Integers<std::int32_t>{range});
    case Element::kBool:
    case Element::kUint32:
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
