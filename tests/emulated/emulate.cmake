# Makes a tessera library whose GPU is emulated on the CPU (simt.h). Kernels are compiled as C++ after device_code.h. The files
# here replace those of the same name in src/cuda, the CUDA runtime and cuBLASLt.

# tessera_emulate(TARGET KERNELS...): compiles these .cu files of a target in that way.
function(tessera_emulate target)
  set(emulated ${PROJECT_SOURCE_DIR}/tests/emulated)
  # Contraction is off: some kernels promise exact bits, and the tests of the others allow for a rounding.
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES LANGUAGE CXX
    COMPILE_OPTIONS "-include;${emulated}/device_code.h;-ffp-contract=off;-fno-strict-aliasing;-Wno-unknown-pragmas;-Wno-old-style-cast;-Wno-cast-qual")
  target_include_directories(${target} BEFORE PRIVATE ${emulated})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
endfunction()

file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
tessera_emulate(tessera ${kernels})
tessera_unity_cuda(tessera)
file(GLOB fakes CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/emulated/*.cc ${PROJECT_SOURCE_DIR}/tests/cuda_host/fake_*.cc)
list(FILTER fakes EXCLUDE REGEX "_test.cc$")
target_sources(tessera PRIVATE ${fakes})
target_include_directories(tessera SYSTEM PUBLIC ${TESSERA_CUDA_INCLUDE_DIR})
