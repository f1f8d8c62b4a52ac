# For cmake -P: tests which architectures are built for which GPUs. SOURCE_DIR is the project's folder.
include(${SOURCE_DIR}/cmake/TesseraGpuArchitectures.cmake)
function(expect capabilities wanted)
  tessera_gpu_architectures(got "${capabilities}")
  if(NOT "${got}" STREQUAL "${wanted}")
    message(FATAL_ERROR "'${capabilities}' gave '${got}', not '${wanted}'")
  endif()
endfunction()

expect("" "")
expect("9.0\n" "90a-real")
expect("8.0\n8.0\n8.0" "80-real")
expect("8.6\n8.9\n8.6" "86-real;89-real")
expect("10.0\n12.0\n10.3" "100-real;120-real;103-real")
expect("7.5" "")           # older than anything Tessera is built for
expect("7.5\n9.0" "90a-real")
expect("[N/A]" "")
expect("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver." "")
