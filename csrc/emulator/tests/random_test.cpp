// Random kernels give the bits of csrc/cpu, for whole tensors and for boxes.
#include "cpu/random_fill.h"
#include "cuda/kernels.h"
#include "emulator/tests/check.h"

namespace gt::testing {
namespace {

using emulator::Buffer;
using emulator::launch;
using emulator::Launch;

constexpr Stream kStream{0x299F31D0A4093822U, 0x0370734413198A2EU};  // digits of pi

struct Case {
  Shape shape, whole, start;
  BoxRuns runs;
};

// A box of a global tensor of rank 2, cut along the last dim or not.
Case box_of(std::int64_t rows, std::int64_t columns, std::int64_t all_columns, std::int64_t row,
            std::int64_t column) {
  BoxRuns runs;
  runs.corner = row * all_columns + column;
  runs.run_elements = columns;
  runs.outer_dims = 1;
  runs.shape[0] = rows;
  runs.global_strides[0] = all_columns;
  return {{rows, columns}, {rows + row + 1, all_columns}, {row, column}, runs};
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {box_of(1, 1, 1, 0, 0), box_of(7, 13, 13, 0, 0),
                                        box_of(5, 6, 17, 3, 5), box_of(3, 33, 40, 1, 7)};
  return all;
}

template <class T, class Cpu, class Kernel>
void same_bits(Element element, Cpu cpu, Kernel kernel) {
  for (const Case& each : cases()) {
    const Box box("test", each.shape, each.whole, each.start);
    const auto elements = static_cast<std::size_t>(box.elements());
    std::vector<T> expected(elements);
    cpu(RandomTarget{expected.data(), element, box, 1});
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      Buffer<T> out("out", elements);
      Launch wanted;
      wanted.grid.x = 2;
      wanted.block.x = 32;
      wanted.seed = seed;
      launch(wanted, [&] { kernel(out.data(), box.elements(), each.runs); });
      check_equal(out.values(), expected, "out");
    }
  }
}

}  // namespace

TEST(uniform_has_the_bits_of_the_cpu) {
  same_bits<float>(
      Element::kFloat32, [](const RandomTarget& target) { fill_uniform(target, kStream, -2, 3); },
      [](float* out, std::int64_t elements, const BoxRuns& box) {
        gt_uniform_f32(out, elements, box, kStream, {-2, 5, std::nextafterf(3, 0)});
      });
  same_bits<std::uint16_t>(
      Element::kBfloat16, [](const RandomTarget& target) { fill_uniform(target, kStream, 0, 1); },
      [](std::uint16_t* out, std::int64_t elements, const BoxRuns& box) {
        gt_uniform_bf16(out, elements, box, kStream, {0, 1, 1 - 0x1p-8F});
      });
}

TEST(normal_has_the_bits_of_the_cpu) {
  same_bits<float>(
      Element::kFloat32, [](const RandomTarget& target) { fill_normal(target, kStream, 1, 2); },
      [](float* out, std::int64_t elements, const BoxRuns& box) {
        gt_normal_f32(out, elements, box, kStream, {1, 2});
      });
  same_bits<std::uint16_t>(
      Element::kBfloat16, [](const RandomTarget& target) { fill_normal(target, kStream, 1, 2); },
      [](std::uint16_t* out, std::int64_t elements, const BoxRuns& box) {
        gt_normal_bf16(out, elements, box, kStream, {1, 2});
      });
}

TEST(integers_have_the_bits_of_the_cpu) {
  same_bits<std::int64_t>(
      Element::kInt64,
      [](const RandomTarget& target) { fill_integers(target, kStream, -7, 1000000007); },
      [](std::int64_t* out, std::int64_t elements, const BoxRuns& box) {
        gt_integers_i64(out, elements, box, kStream, {-7, 1000000014});
      });
}

TEST(dropout_has_the_mask_of_the_cpu) {
  constexpr auto kThreshold = std::uint64_t{1} << 30;  // p = 1/4
  same_bits<std::uint8_t>(
      Element::kBool, [](const RandomTarget& target) { fill_dropout_mask(target, kStream, 0.25); },
      [](std::uint8_t* out, std::int64_t elements, const BoxRuns& box) {
        gt_dropout_mask(out, elements, box, kStream, kThreshold);
      });
  const Case& each = cases()[2];
  const Box box("test", each.shape, each.whole, each.start);
  const auto elements = static_cast<std::size_t>(box.elements());
  std::vector<std::uint8_t> keep(elements);
  fill_dropout_mask({keep.data(), Element::kBool, box, 1}, kStream, 0.25);
  std::vector<float> values(elements);
  std::vector<float> expected(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    values[i] = static_cast<float>(i) - 9.5F;
    expected[i] = keep[i] != 0 ? values[i] * 1.25F : 0.0F;
  }
  Buffer<float> x("x", values);
  Buffer<float> out("out", elements);
  Buffer<std::uint8_t> kept("keep", elements);
  Launch wanted;
  wanted.block.x = 32;
  launch(wanted, [&] {
    gt_dropout_f32(x.data(), out.data(), kept.data(), box.elements(), each.runs, kStream,
                   kThreshold, 1.25F);
  });
  check_equal(out.values(), expected, "dropout");
  check_equal(kept.values(), keep, "keep");
}

}  // namespace gt::testing
