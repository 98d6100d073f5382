# Embeds the fat binaries of csrc/cuda in the module where there is an nvcc: GT_NVCC, CUDACXX, the
# path, or the package cuda-toolkit of Python_EXECUTABLE or of target/cuda/venv (`just cuda`).
# Without one, gt._kernels.cuda_sources() is empty and nothing else changes.
set(images ${CMAKE_CURRENT_BINARY_DIR}/cuda_images)
set(tool ${CMAKE_CURRENT_SOURCE_DIR}/../tools/cuda_kernels.py)
set(found_nvcc "")
if(EXISTS ${tool})
  execute_process(
    COMMAND "${Python_EXECUTABLE}" ${tool} --find
    OUTPUT_VARIABLE found_nvcc
    OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
endif()
if(found_nvcc)
  message(STATUS "CUDA kernels are embedded, by ${found_nvcc}")
  file(GLOB cuda_sources CONFIGURE_DEPENDS cuda/*.cu)
  file(GLOB cuda_headers CONFIGURE_DEPENDS cuda/*.h cuda/ptx/*.h algo/*.h)
  add_custom_command(
    OUTPUT ${images}/images.cpp
    COMMAND "${Python_EXECUTABLE}" ${tool} --embed ${images}
    DEPENDS ${tool} ${cuda_sources} ${cuda_headers}
    VERBATIM)
  target_sources(_kernels PRIVATE ${images}/images.cpp)
else()
  message(STATUS "no nvcc: CUDA kernels are not embedded")
  target_sources(_kernels PRIVATE cuda/host/no_images.cpp)
endif()
