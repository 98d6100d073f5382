// Copies between a device's memory and the host's, without Python.
//
// The bytes go through pinned memory of torch's caching allocator: a copy from or to other host
// memory makes the driver copy them once more, and waits for it. The allocator gives a block to
// nobody else before the copies that were queued with it have run.
#include <ATen/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "kernels.h"

namespace gt {

namespace {

// Larger values are read into ordinary memory: pinning many pages takes longer than their copy.
constexpr size_t PINNED_READ_MOST = size_t{1} << 20;
// Length of the chunks of a write: the host copies one while the device fetches the one before.
constexpr size_t WRITE_CHUNK = size_t{4} << 20;

at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions().dtype(dtype).pinned_memory(true));
}

at::Tensor to_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return row_major(tensor);
  if (tensor.nbytes() > PINNED_READ_MOST || tensor.nbytes() == 0)
    return tensor.contiguous().to(at::kCPU);
  at::Tensor host = pinned(tensor.sizes(), tensor.scalar_type());
  host.copy_(tensor);
  return host;
}

void write_bytes(const at::Tensor& tensor, size_t offset, const char* bytes, size_t count) {
  at::Tensor flat = tensor.view({-1}).view(at::kByte);
  TORCH_CHECK(offset <= flat.nbytes() && count <= flat.nbytes() - offset, count, " bytes at ",
              offset, " into ", flat.nbytes());
  while (count > 0) {
    size_t chunk = std::min(count, WRITE_CHUNK);
    auto length = static_cast<int64_t>(chunk);
    at::Tensor host = pinned({length}, at::kByte);
    std::memcpy(host.mutable_data_ptr(), bytes, chunk);
    flat.narrow(0, static_cast<int64_t>(offset), length).copy_(host, /*non_blocking=*/true);
    offset += chunk;
    bytes += chunk;
    count -= chunk;
  }
}

}  // namespace

}  // namespace gt

extern "C" {

// The elements contiguous in host memory, as a tensor that the caller owns; null with an error.
void* gt_to_host(void* impl) {
  gt::Borrowed tensor(static_cast<c10::TensorImpl*>(impl));
  try {
    return gt::to_host(*tensor).unsafeReleaseTensorImpl();
  } catch (const std::exception&) {
    return nullptr;
  }
}

// Copies bytes into a contiguous tensor of a device; -1 with an error. The bytes are the caller's
// again when this returns, and the device has them before it runs what is queued next.
int gt_write(void* impl, uint64_t offset, const char* bytes, uint64_t count) {
  gt::Borrowed tensor(static_cast<c10::TensorImpl*>(impl));
  try {
    gt::write_bytes(*tensor, offset, bytes, count);
    return 0;
  } catch (const std::exception&) {
    return -1;
  }
}
}
