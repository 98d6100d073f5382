// Every kernel by its name, for the ATen helper and for Python.
#include <unordered_map>

#include "table/kernel.h"

namespace gt {

const KernelRow* find_kernel(std::string_view name) {
  static const std::unordered_map<std::string_view, const KernelRow*> kernels = [] {
    std::unordered_map<std::string_view, const KernelRow*> all;
    for (const std::span<const KernelRow> family :
         {norm_kernels(), dim_kernels(), attention_kernels(), recurrent_kernels(),
          product_kernels(), update_kernels(), copy_kernels(), order_kernels(), reduction_kernels(),
          row_kernels(), function_kernels(), place_kernels()}) {
      for (const KernelRow& row : family) {
        all.emplace(row.name, &row);
      }
    }
    return all;
  }();
  const auto row = kernels.find(name);
  return row == kernels.end() ? nullptr : row->second;
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
