#include "cuda/host/worker_calls.h"

#include <algorithm>
#include <stdexcept>

#include "algo/random_parameters.h"
#include "core/box.h"
#include "cuda/host/grids.h"

namespace gt::cuda {
namespace {

constexpr unsigned kRandomThreads = 256;
constexpr std::int64_t kRandomElements = 4;  // per thread, before it advances by the whole grid
constexpr std::int64_t kRandomBlocksMax = 4096;
constexpr unsigned kAdamwThreads = 256;

Grid random_grid(std::int64_t elements) {
  Grid grid;
  const std::int64_t blocks = ceil_divided(elements, kRandomThreads * kRandomElements);
  grid.blocks[0] = static_cast<unsigned>(std::min(blocks, kRandomBlocksMax));
  grid.threads[0] = kRandomThreads;
  return grid;
}

BoxRuns runs_of(const char* op, const Box& box) {
  BoxRuns runs;
  if (box.outer_dims() > BoxRuns::kOuterDimsMax) {
    throw std::invalid_argument(message(op, ": the box is cut in dim ", box.outer_dims(),
                                        ", on a GPU in dim ", std::uint32_t{BoxRuns::kOuterDimsMax},
                                        " at most"));
  }
  runs.corner = box.corner_index();
  runs.run_elements = box.run_elements();
  runs.outer_dims = static_cast<std::uint32_t>(box.outer_dims());
  for (std::size_t dim = 0; dim < box.outer_dims(); ++dim) {
    runs.shape[dim] = box.size(dim);
    runs.global_strides[dim] = box.global_stride(dim);
  }
  return runs;
}

// One launch of a random kernel: out, elements, box, stream and the distribution's own values.
class RandomLaunch {
 public:
  RandomLaunch(Launcher& launcher, const char* op, const RandomBox& given)
      : launcher_(launcher),
        op_(op),
        given_(given),
        box_(op, given.shape, given.global_shape, given.start) {}

  bool is_empty() const { return box_.elements() == 0; }

  template <class Signature, class T, class... Values>
  void operator()(const Kernel<Signature>& kernel, T* out, const Values&... values) {
    launcher_.launch(kernel, random_grid(box_.elements()), queue({address(out)}), out,
                     box_.elements(), runs_of(op_, box_), given_.stream, values...);
  }
  template <class Signature, class... Values>
  void with_operand(const Kernel<Signature>& kernel, const float* x, float* out, std::uint8_t* keep,
                    const Values&... values) {
    launcher_.launch(kernel, random_grid(box_.elements()),
                     queue({address(x), address(out), address(keep)}), x, out, keep,
                     box_.elements(), runs_of(op_, box_), given_.stream, values...);
  }

 private:
  static Address address(const void* pointer) { return reinterpret_cast<Address>(pointer); }
  Queue queue(std::initializer_list<Address> addresses) const {
    return {launcher_.device_of(op_, addresses), given_.queue_stream};
  }

  Launcher& launcher_;
  const char* op_;
  const RandomBox& given_;
  Box box_;
};

[[noreturn]] void refuse_dtype(const char* op, Element element) {
  throw DtypeError(message(op, ": no CUDA kernel fills ", element_name(element)));
}
}  // namespace

void fill_uniform(Launcher& launcher, Address out, Element element, const RandomBox& box,
                  double low, double high) {
  check_order(low, high);
  RandomLaunch launch(launcher, "uniform", box);
  if (launch.is_empty()) {
    return;
  }
  switch (element) {
    case Element::kFloat32:
      return launch(GT_KERNEL("random", gt_uniform_f32), at<float>(out), range_f32(low, high));
    case Element::kFloat64:
      return launch(GT_KERNEL("random", gt_uniform_f64), at<double>(out), range_f64(low, high));
    case Element::kBfloat16:
      return launch(GT_KERNEL("random", gt_uniform_bf16), at<std::uint16_t>(out),
                    range_bf16(low, high));
    case Element::kFloat16:
      return launch(GT_KERNEL("random", gt_uniform_f16), at<std::uint16_t>(out),
                    range_f16(low, high));
    default:
      refuse_dtype("uniform", element);
  }
}

void fill_normal(Launcher& launcher, Address out, Element element, const RandomBox& box,
                 double mean, double std) {
  const NormalShape<double> wide = checked_normal(element, mean, std);
  const NormalShape<float> narrow{static_cast<float>(mean), static_cast<float>(std)};
  RandomLaunch launch(launcher, "normal", box);
  if (launch.is_empty()) {
    return;
  }
  switch (element) {
    case Element::kFloat32:
      return launch(GT_KERNEL("random", gt_normal_f32), at<float>(out), narrow);
    case Element::kFloat64:
      return launch(GT_KERNEL("random", gt_normal_f64), at<double>(out), wide);
    case Element::kBfloat16:
      return launch(GT_KERNEL("random", gt_normal_bf16), at<std::uint16_t>(out), narrow);
    case Element::kFloat16:
      return launch(GT_KERNEL("random", gt_normal_f16), at<std::uint16_t>(out), narrow);
    default:
      refuse_dtype("normal", element);
  }
}

void fill_integers(Launcher& launcher, Address out, Element element, const RandomBox& box,
                   std::int64_t low, std::int64_t high) {
  const IntegerRange range = checked_integers(element, low, high);
  RandomLaunch launch(launcher, "integers", box);
  if (launch.is_empty()) {
    return;
  }
  switch (element) {
    case Element::kInt64:
      return launch(GT_KERNEL("random", gt_integers_i64), at<std::int64_t>(out), range);
    case Element::kInt32:
      return launch(GT_KERNEL("random", gt_integers_i32), at<std::int32_t>(out), range);
    default:
      refuse_dtype("integers", element);
  }
}

void fill_bernoulli(Launcher& launcher, Address out, const RandomBox& box, double p) {
  const std::uint64_t threshold = checked_threshold("bernoulli", p);
  RandomLaunch launch(launcher, "bernoulli", box);
  if (!launch.is_empty()) {
    launch(GT_KERNEL("random", gt_bernoulli_mask), at<std::uint8_t>(out), threshold);
  }
}

void fill_dropout_mask(Launcher& launcher, Address out, const RandomBox& box, double p) {
  const std::uint64_t threshold = checked_threshold("dropout_mask", p);
  RandomLaunch launch(launcher, "dropout_mask", box);
  if (!launch.is_empty()) {
    launch(GT_KERNEL("random", gt_dropout_mask), at<std::uint8_t>(out), threshold);
  }
}

void dropout(Launcher& launcher, Address x, Address out, Address keep, const RandomBox& box,
             double p, float scale) {
  const std::uint64_t threshold = checked_threshold("dropout", p);
  RandomLaunch launch(launcher, "dropout", box);
  if (!launch.is_empty()) {
    launch.with_operand(GT_KERNEL("random", gt_dropout_f32), at<const float>(x), at<float>(out),
                        at<std::uint8_t>(keep), threshold, scale);
  }
}

std::int64_t adamw_table_bytes(std::size_t tensors) {
  return static_cast<std::int64_t>(tensors * sizeof(AdamwTensor));
}

void adamw(Launcher& launcher, const std::vector<AdamwOperand>& operands, Address table,
           std::int64_t table_bytes, const AdamwStep& step, std::uintptr_t queue_stream) {
  if (table_bytes < adamw_table_bytes(operands.size())) {
    throw std::invalid_argument(message("adamw: the table of ", operands.size(), " tensors takes ",
                                        adamw_table_bytes(operands.size()), " bytes, not ",
                                        table_bytes));
  }
  std::vector<AdamwTensor> rows;
  std::int64_t blocks = 0;
  int device = 0;
  for (const AdamwOperand& one : operands) {
    if (one.elements < 0) {
      throw std::invalid_argument(message("adamw: a tensor of ", one.elements, " elements"));
    }
    if (one.elements == 0) {
      continue;
    }
    device =
        launcher.device_of("adamw", {table, one.parameter, one.gradient, one.mean, one.square});
    rows.push_back({at<float>(one.parameter), at<const float>(one.gradient), at<float>(one.mean),
                    at<float>(one.square), one.elements, static_cast<std::uint32_t>(blocks)});
    blocks += ceil_divided(one.elements, kAdamwThreads);
    if (blocks > kBlocksMax) {
      throw std::invalid_argument(message("adamw: more than ", kBlocksMax, " blocks of ",
                                          kAdamwThreads, " elements in one launch"));
    }
  }
  if (rows.empty()) {
    return;
  }
  const Queue queue{device, queue_stream};
  launcher.copy_to_device(table, rows.data(), rows.size() * sizeof(AdamwTensor), queue);
  Grid grid;
  grid.blocks[0] = static_cast<unsigned>(blocks);
  grid.threads[0] = kAdamwThreads;
  launcher.launch(GT_KERNEL("adamw", gt_adamw_f32), grid, queue, at<const AdamwTensor>(table),
                  static_cast<std::uint32_t>(rows.size()), step);
}

}  // namespace gt::cuda
