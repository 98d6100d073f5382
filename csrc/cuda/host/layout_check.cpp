// Compares driver.h's declarations of CUDA's driver with NVIDIA's header. `just cuda` compiles it;
// it is not part of the module.
#include <cuda.h>

#include <cstddef>
#include <string_view>

#include "cuda/host/driver.h"
#include "cuda/tensor_map.h"

namespace gt::cuda {
namespace {

#define GT_TEXT_OF(name) #name
#define GT_TEXT(name) GT_TEXT_OF(name)
#define GT_SAME_PLACE(ours, our_field, theirs, their_field) \
  static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field))

static_assert(sizeof(Result) == sizeof(CUresult) && sizeof(Device) == sizeof(CUdevice));
static_assert(sizeof(CUdeviceptr) == sizeof(std::uint64_t));
static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));
GT_SAME_PLACE(LaunchAttribute, value, CUlaunchAttribute, value);
GT_SAME_PLACE(LaunchAttribute, value.cooperative, CUlaunchAttribute, value.cooperative);
GT_SAME_PLACE(LaunchAttribute, value.cluster, CUlaunchAttribute, value.clusterDim.x);
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
GT_SAME_PLACE(LaunchConfig, grid, CUlaunchConfig, gridDimX);
GT_SAME_PLACE(LaunchConfig, block, CUlaunchConfig, blockDimX);
GT_SAME_PLACE(LaunchConfig, shared_bytes, CUlaunchConfig, sharedMemBytes);
GT_SAME_PLACE(LaunchConfig, queue, CUlaunchConfig, hStream);
GT_SAME_PLACE(LaunchConfig, attributes, CUlaunchConfig, attrs);
GT_SAME_PLACE(LaunchConfig, attribute_count, CUlaunchConfig, numAttrs);

static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle));

static_assert(int{kCooperative} == CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
static_assert(int{kClusterDimension} == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
static_assert(int{kErrorLog} == CU_JIT_ERROR_LOG_BUFFER);
static_assert(int{kErrorLogBytes} == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
static_assert(int{kDynamicSharedBytesMax} == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(int{kDeviceOrdinal} == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(int{kMultiprocessors} == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(int{kPeerAccess} == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
static_assert(int{kCapabilityMajor} == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(int{kCapabilityMinor} == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
static_assert(alignof(TensorMap) >= alignof(CUtensorMap));
static_assert(int{kMapFloat16} == CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
static_assert(int{kMapBfloat16} == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
static_assert(int{kMapInterleaveNone} == CU_TENSOR_MAP_INTERLEAVE_NONE);
static_assert(int{kMapSwizzle128} == CU_TENSOR_MAP_SWIZZLE_128B);
static_assert(int{kMapPromotion256} == CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
static_assert(int{kMapFillZeros} == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);

// Functions that have had several versions: the header's current one.
static_assert(std::string_view(GT_TEXT(cuCtxPushCurrent)) == "cuCtxPushCurrent_v2");
static_assert(std::string_view(GT_TEXT(cuCtxPopCurrent)) == "cuCtxPopCurrent_v2");
static_assert(std::string_view(GT_TEXT(cuMemcpyHtoDAsync)) == "cuMemcpyHtoDAsync_v2");
static_assert(std::string_view(GT_TEXT(cuModuleLoadDataEx)) == "cuModuleLoadDataEx");
static_assert(std::string_view(GT_TEXT(cuLaunchKernelEx)) == "cuLaunchKernelEx");
static_assert(std::string_view(GT_TEXT(cuMemAlloc)) == "cuMemAlloc_v2");
static_assert(std::string_view(GT_TEXT(cuMemFree)) == "cuMemFree_v2");
static_assert(std::string_view(GT_TEXT(cuMemsetD32)) == "cuMemsetD32_v2");
static_assert(std::string_view(GT_TEXT(cuIpcOpenMemHandle)) == "cuIpcOpenMemHandle_v2");
static_assert(std::string_view(GT_TEXT(cuTensorMapEncodeTiled)) == "cuTensorMapEncodeTiled");

}  // namespace
}  // namespace gt::cuda
