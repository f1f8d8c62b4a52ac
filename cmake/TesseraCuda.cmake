# Sets TESSERA_HAVE_CUDA, as TesseraCudaChoice.cmake says.
include(TesseraCudaChoice)
include(TesseraGpuArchitectures)
set(TESSERA_HAVE_CUDA OFF)
set(TESSERA_CUDA_ARCHITECTURES "" CACHE STRING "GPU architectures to build for; empty: those present, else 80 and 90a")

option(TESSERA_CUDA_COMPILE_CHECK
  "Compile each kernel once, quickly, into slow code: for builds that no GPU runs" OFF)

# EMULATED compiles the CUDA back end as C++, for tests without a GPU: tests/emulated holds the emulated one. It needs
# CUDA's headers, but no CUDA compiler.
set(TESSERA_CUDA_EMULATED OFF)
if(TESSERA_CUDA STREQUAL "EMULATED")
  find_path(TESSERA_CUDA_INCLUDE_DIR cuda_runtime_api.h
    HINTS /usr/local/cuda/include $ENV{CUDA_HOME}/include $ENV{CUDA_PATH}/include)
  if(NOT TESSERA_CUDA_INCLUDE_DIR)
    message(FATAL_ERROR "TESSERA_CUDA is EMULATED but CUDA's headers were not found: install the CUDA toolkit, or set CUDA_HOME")
  endif()
  set(TESSERA_CUDA_EMULATED ON)
  set(CMAKE_CUDA_ARCHITECTURES 90a-real)  # what the emulated GPU claims to be
elseif(NOT TESSERA_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  file(GLOB gpu_nodes /dev/nvidia[0-9]*)
  tessera_builds_cuda(TESSERA_HAVE_CUDA ${TESSERA_CUDA} "${CMAKE_CUDA_COMPILER}" "${gpu_nodes}" "${SKBUILD}")
endif()

if(TESSERA_HAVE_CUDA)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  set(architectures "${TESSERA_CUDA_ARCHITECTURES}")
  if(NOT architectures AND gpu_nodes)
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE capabilities OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    tessera_gpu_architectures(architectures "${capabilities}")
  endif()
  if(NOT architectures)
    set(architectures 80-real 90a-real)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${architectures})
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(TESSERA_CUDA_OPTIONS
    -std=c++20                                           # CMake 3.25 does not know how nvcc spells CUDA_STANDARD 20
    --expt-relaxed-constexpr                             # constexpr functions of src/core in kernels
    -Xcompiler=-Wall,-Wextra,-Wshadow,-Wnon-virtual-dtor # of the host; -Wpedantic objects to what nvcc generates
    $<$<BOOL:${TESSERA_WERROR}>:--Werror=all-warnings> $<$<BOOL:${TESSERA_WERROR}>:-Xcompiler=-Werror>)
  if(TESSERA_CUDA_COMPILE_CHECK AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.9)
    add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--Ofast-compile=max>")
    message(STATUS "Kernels are slow here, because their compilation is fast: TESSERA_CUDA_COMPILE_CHECK is ON")
  endif()
  message(STATUS "CUDA back end: on, for ${architectures}")
elseif(TESSERA_CUDA_EMULATED)
  set(TESSERA_HAVE_CUDA ON)
  message(STATUS "CUDA back end: emulated on the CPU, for tests")
else()
  message(STATUS "CUDA back end: off")
endif()
# For core/build_config.h and the tests.
target_compile_definitions(tessera_options INTERFACE TESSERA_HAVE_CUDA=$<BOOL:${TESSERA_HAVE_CUDA}>)
