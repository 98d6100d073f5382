// A kernel's row of the table: a name, and a type that reads a call and says what it takes.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string_view>

#include "core/calls.h"
#include "table/call.h"

namespace gt {

// One kernel. `results` is how many it makes.
struct KernelRow {
  std::string_view name;
  int results;
  KernelEntry entry;
};

inline int failed(std::string_view what, char* text, std::size_t text_bytes) {
  const std::size_t count = std::min(what.size(), text_bytes - 1);
  std::memcpy(text, what.data(), count);
  text[count] = '\0';
  return KERNEL_FAILED;
}

// The entry of a kernel.
//
// `Call` is built from Arguments, which it reads in the row's order. Its is_valid() says whether
// the kernel computes the call at all, pays() or pays(caller) whether it is faster than what runs
// otherwise; run() makes the results, or returns false where only the values say that it is another
// implementation's call.
template <class Call>
int run_kernel(const KernelArgument* arguments, std::size_t count, const KernelCaller& caller,
               char* text, std::size_t text_bytes) {
  try {
    Arguments from(arguments, count);
    const Call call(from);
    const auto pays = [&] {
      if constexpr (requires { call.pays(caller); }) {
        return call.pays(caller);
      } else {
        return call.pays();
      }
    };
    if (!from.are_well_formed() || !call.is_valid() || !(caller.takes_all != 0 || pays())) {
      return NOT_TAKEN;
    }
    count_call();
    Results results(caller);
    return call.run(results) ? results.count() : NOT_TAKEN;
  } catch (const std::bad_alloc&) {
    return KERNEL_HAS_NO_MEMORY;
  } catch (const std::exception& error) {
    return failed(error.what(), text, text_bytes);
  }
}

// The entry of a kernel whose calls are read in several ways: the first that takes one runs it.
template <class... Calls>
int run_first(const KernelArgument* arguments, std::size_t count, const KernelCaller& caller,
              char* text, std::size_t text_bytes) {
  int status = NOT_TAKEN;
  (((status = run_kernel<Calls>(arguments, count, caller, text, text_bytes)) == NOT_TAKEN) && ...);
  return status;
}

// The kernels of each file of this folder.
std::span<const KernelRow> norm_kernels();
std::span<const KernelRow> dim_kernels();
std::span<const KernelRow> attention_kernels();
std::span<const KernelRow> recurrent_kernels();
std::span<const KernelRow> product_kernels();
std::span<const KernelRow> update_kernels();
std::span<const KernelRow> copy_kernels();
std::span<const KernelRow> order_kernels();
std::span<const KernelRow> function_kernels();
std::span<const KernelRow> reduction_kernels();
std::span<const KernelRow> row_kernels();
std::span<const KernelRow> place_kernels();

// The kernel of this name; null where there is none.
const KernelRow* find_kernel(std::string_view name);

}  // namespace gt
