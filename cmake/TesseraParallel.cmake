# Sets TESSERA_HAVE_MPI and TESSERA_HAVE_NCCL. AUTO: on if the library is found. NCCL is opened at run time, so its header is
# enough to build; MPI is linked into the program and the tests only.
set(TESSERA_MPI AUTO CACHE STRING "Several processes over MPI, for the program and the tests: AUTO, ON or OFF")
set(TESSERA_NCCL AUTO CACHE STRING "Several GPUs over NCCL: AUTO, ON or OFF")

set(TESSERA_HAVE_MPI OFF)
if(NOT TESSERA_MPI STREQUAL "OFF" AND NOT (TESSERA_MPI STREQUAL "AUTO" AND TESSERA_PORTABLE))
  find_package(MPI QUIET COMPONENTS CXX)
  set(TESSERA_HAVE_MPI ${MPI_CXX_FOUND})
  if(TESSERA_MPI STREQUAL "ON" AND NOT MPI_CXX_FOUND)
    message(FATAL_ERROR "TESSERA_MPI is ON but MPI was not found: install libopenmpi-dev and openmpi-bin")
  endif()
endif()

set(TESSERA_HAVE_NCCL OFF)
if(NOT TESSERA_NCCL STREQUAL "OFF")
  find_path(TESSERA_NCCL_INCLUDE_DIR nccl.h HINTS /usr/local/cuda/include $ENV{NCCL_HOME}/include $ENV{CUDA_HOME}/include)
  find_path(TESSERA_NCCL_CUDA_INCLUDE_DIR cuda_runtime.h
    HINTS ${TESSERA_NCCL_INCLUDE_DIR} /usr/local/cuda/include $ENV{CUDA_HOME}/include $ENV{CUDA_PATH}/include)
  mark_as_advanced(TESSERA_NCCL_INCLUDE_DIR TESSERA_NCCL_CUDA_INCLUDE_DIR)
  if(TESSERA_NCCL_INCLUDE_DIR AND TESSERA_NCCL_CUDA_INCLUDE_DIR)
    set(TESSERA_HAVE_NCCL ON)
  elseif(TESSERA_NCCL STREQUAL "ON")
    message(FATAL_ERROR "TESSERA_NCCL is ON but nccl.h or cuda_runtime.h was not found: install NCCL's headers, or set NCCL_HOME")
  endif()
endif()
message(STATUS "Several processes: MPI ${TESSERA_HAVE_MPI}, NCCL ${TESSERA_HAVE_NCCL}")
