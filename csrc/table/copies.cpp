// Copies in row-major order: which the kernel takes.
#include "cpu/strided_copy.h"
#include "table/kernel.h"

namespace gt {
namespace {

// Elements from which on tiles take less time: all of a smaller copy is in the first cache.
constexpr std::int64_t kElementsMin = 4096;
// A square of a register's elements is transposed at once.
constexpr std::int64_t kRegisterBytes = 16;

struct RowMajorCall {
  explicit RowMajorCall(Arguments& from) : self(from.tensor()) {}

  bool is_valid() const { return !self.is_empty(); }

  // Neighbours in the copy are none in the operand, whose neighbours stand along another dimension;
  // both dimensions have a square or more.
  bool pays() const {
    if (self.is_contiguous() || self.elements() < kElementsMin) {
      return false;
    }
    const auto bytes = static_cast<std::int64_t>(element_bytes(self.element));
    const std::int64_t least = std::max<std::int64_t>(4, kRegisterBytes / bytes);
    int last = self.rank - 1;
    while (self.size(last) == 1) {
      --last;
    }
    bool is_transposed = false;
    for (int dim = 0; dim < last; ++dim) {
      is_transposed |= self.stride(dim) == 1 && self.size(dim) >= least;
    }
    return is_transposed && self.stride(last) > 1 && self.size(last) >= least;
  }

  bool run(Results& results) const {
    std::vector<StridedDim> dims;
    for (int dim = 0; dim < self.rank; ++dim) {
      dims.push_back({self.size(dim), self.stride(dim)});
    }
    void* out = results.make(self.element, sizes_of(self)).data;
    strided_copy(element_bytes(self.element), self.data, dims, out, results.threads());
    return true;
  }

  TensorView self;
};

constexpr KernelRow kRows[] = {{"row_major", 1, run_kernel<RowMajorCall>}};

}  // namespace

std::span<const KernelRow> copy_kernels() { return kRows; }

}  // namespace gt
