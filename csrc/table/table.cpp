// Every kernel by its name, for the ATen helper and for Python.
#include "table/kernel.h"

namespace gt {

const KernelRow* find_kernel(std::string_view name) {
  const std::span<const KernelRow> kFamilies[] = {
      norm_kernels(),    dim_kernels(),    attention_kernels(), recurrent_kernels(),
      product_kernels(), update_kernels(), copy_kernels(),      order_kernels()};
  for (const std::span<const KernelRow> family : kFamilies) {
    for (const KernelRow& row : family) {
      if (row.name == name) {
        return &row;
      }
    }
  }
  return nullptr;
}

}  // namespace gt

// The entry of the kernel with this name, and how many results it makes; null where there is none.
extern "C" __attribute__((visibility("default"))) gt::KernelEntry gt_kernel_entry(const char* name,
                                                                                  int* results) {
  const gt::KernelRow* row = gt::find_kernel(name);
  if (row == nullptr) {
    return nullptr;
  }
  *results = row->results;
  return row->entry;
}
