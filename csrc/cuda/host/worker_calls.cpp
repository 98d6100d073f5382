#include "cuda/host/worker_calls.h"

#include <algorithm>
#include <stdexcept>

#include "algo/random_parameters.h"
#include "core/box.h"

namespace gt::cuda {
namespace {

constexpr unsigned kRandomThreads = 256;
constexpr std::int64_t kRandomElements = 4;  // of a thread, before it goes on by the whole grid
constexpr std::int64_t kRandomBlocksMax = 4096;
constexpr unsigned kAdamwThreads = 256;
constexpr std::int64_t kBlocksMax = 0x7FFFFFFF;

template <class T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

std::int64_t ceil_divided(std::int64_t count, std::int64_t by) { return (count + by - 1) / by; }

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

namespace {

// Copies take 16 bytes at a time.
constexpr std::int64_t kGemmElements = 8;
constexpr std::int64_t kGemmBatchesMax = 65535;  // gridDim.y
constexpr std::int64_t kSkinnyBlocksMax = 4096;

void check_gemm_operand(const char* name, const GemmOperand& operand, std::int64_t side_by_side) {
  const bool is_aligned = reinterpret_cast<Address>(operand.data) % 16 == 0;
  if (!is_aligned || operand.step % kGemmElements != 0 || operand.batch_step % kGemmElements != 0 ||
      side_by_side % kGemmElements != 0 || operand.step < side_by_side) {
    throw std::invalid_argument(
        message("gemm: ", name, " has ", side_by_side, " elements side by side, ", operand.step,
                " from row to row and ", operand.batch_step, " from batch to batch, and begins ",
                is_aligned ? "at" : "at no", " multiple of 16 bytes; each has to be a multiple of ",
                kGemmElements, " elements"));
  }
}

void check_gemm(GemmLayout layout, const GemmCall& call, std::int64_t batches) {
  if (call.rows < 0 || call.columns < 0 || call.depth < 0 || call.columns % 2 != 0 || batches < 0 ||
      batches > kGemmBatchesMax) {
    throw std::invalid_argument(message("gemm: ", batches, " products of [", call.rows, ", ",
                                        call.depth, "] and [", call.depth, ", ", call.columns,
                                        "]; up to ", kGemmBatchesMax, ", and columns are even"));
  }
  check_gemm_operand("a", call.a, layout == GemmLayout::kTN ? call.rows : call.depth);
  check_gemm_operand("b", call.b, layout == GemmLayout::kNT ? call.depth : call.columns);
}

// nn, nt, tn in bfloat16, then in float16.
template <class Signature>
Kernel<Signature> chosen(const Kernel<Signature> (&kernels)[6], Element element,
                         GemmLayout layout) {
  if (element != Element::kBfloat16 && element != Element::kFloat16) {
    throw DtypeError(message("gemm: no CUDA kernel multiplies ", element_name(element)));
  }
  return kernels[(element == Element::kBfloat16 ? 0 : 3) + static_cast<int>(layout)];
}

std::int64_t gemm_tiles(const GemmCall& call) {
  const std::int64_t tiles =
      ceil_divided(call.rows, GemmTile::kRows) * ceil_divided(call.columns, GemmTile::kColumns);
  if (tiles > kBlocksMax) {
    throw std::invalid_argument(message("gemm: more than ", kBlocksMax, " tiles in one launch"));
  }
  return tiles;
}

int device_of(const Launcher& launcher, const GemmCall& call, Address table) {
  const auto address = [](const void* pointer) { return reinterpret_cast<Address>(pointer); };
  return launcher.device_of("gemm", {address(call.a.data), address(call.b.data), address(call.bias),
                                     address(call.residual.data), address(call.out), table});
}

// The launch of few rows; else of tiles.
Grid skinny_grid(const GemmCall& call) {
  Grid grid;
  grid.blocks[0] = static_cast<unsigned>(
      std::min(kSkinnyBlocksMax, ceil_divided(call.columns, SkinnyTile::kColumns)));
  grid.threads[0] = SkinnyTile::kThreads;
  return grid;
}

Grid tile_grid(std::int64_t tiles) {
  Grid grid;
  grid.blocks[0] = static_cast<unsigned>(tiles);
  grid.threads[0] = GemmTile::kThreads;
  grid.shared_bytes = GemmTile::kSharedBytes;
  return grid;
}

}  // namespace

void gemm(Launcher& launcher, Element element, GemmLayout layout, const GemmCall& call,
          std::int64_t batches, std::uintptr_t queue_stream) {
  constexpr Kernel<void(GemmCall)> kTiles[6] = {
      GT_KERNEL("gemm", gt_gemm_nn_bf16), GT_KERNEL("gemm", gt_gemm_nt_bf16),
      GT_KERNEL("gemm", gt_gemm_tn_bf16), GT_KERNEL("gemm", gt_gemm_nn_f16),
      GT_KERNEL("gemm", gt_gemm_nt_f16),  GT_KERNEL("gemm", gt_gemm_tn_f16)};
  const Kernel<void(GemmCall)> kernel = chosen(kTiles, element, layout);
  check_gemm(layout, call, batches);
  const std::int64_t tiles = gemm_tiles(call);
  if (tiles == 0 || batches == 0) {
    return;
  }
  const Queue queue{device_of(launcher, call, 0), queue_stream};
  const bool is_skinny = layout == GemmLayout::kNT && call.rows <= SkinnyTile::kRowsMax;
  Grid grid = is_skinny ? skinny_grid(call) : tile_grid(tiles);
  grid.blocks[1] = static_cast<unsigned>(batches);
  if (!is_skinny) {
    launcher.launch(kernel, grid, queue, call);
  } else if (element == Element::kBfloat16) {
    launcher.launch(GT_KERNEL("skinny", gt_skinny_nt_bf16), grid, queue, call);
  } else {
    launcher.launch(GT_KERNEL("skinny", gt_skinny_nt_f16), grid, queue, call);
  }
}

std::int64_t gemm_table_bytes(std::size_t products) {
  return static_cast<std::int64_t>(products * sizeof(GemmGroup));
}

void grouped_gemm(Launcher& launcher, Element element, GemmLayout layout,
                  const std::vector<GemmCall>& calls, Address table, std::int64_t table_bytes,
                  std::uintptr_t queue_stream) {
  constexpr Kernel<void(const GemmGroup*, std::uint32_t)> kGroups[6] = {
      GT_KERNEL("gemm", gt_grouped_gemm_nn_bf16), GT_KERNEL("gemm", gt_grouped_gemm_nt_bf16),
      GT_KERNEL("gemm", gt_grouped_gemm_tn_bf16), GT_KERNEL("gemm", gt_grouped_gemm_nn_f16),
      GT_KERNEL("gemm", gt_grouped_gemm_nt_f16),  GT_KERNEL("gemm", gt_grouped_gemm_tn_f16)};
  const auto kernel = chosen(kGroups, element, layout);
  if (table_bytes < gemm_table_bytes(calls.size())) {
    throw std::invalid_argument(message("gemm: the table of ", calls.size(), " products takes ",
                                        gemm_table_bytes(calls.size()), " bytes, not ",
                                        table_bytes));
  }
  std::vector<GemmGroup> groups;
  std::int64_t tiles = 0;
  int device = 0;
  for (const GemmCall& call : calls) {
    check_gemm(layout, call, 1);
    const std::int64_t added = gemm_tiles(call);
    if (added == 0) {
      continue;
    }
    device = device_of(launcher, call, table);
    groups.push_back({call, static_cast<std::uint32_t>(tiles)});
    tiles += added;
    if (tiles > kBlocksMax) {
      throw std::invalid_argument(message("gemm: more than ", kBlocksMax, " tiles in one launch"));
    }
  }
  if (groups.empty()) {
    return;
  }
  const Queue queue{device, queue_stream};
  launcher.copy_to_device(table, groups.data(), groups.size() * sizeof(GemmGroup), queue);
  launcher.launch(kernel, tile_grid(tiles), queue, at<const GemmGroup>(table),
                  static_cast<std::uint32_t>(groups.size()));
}

}  // namespace gt::cuda
