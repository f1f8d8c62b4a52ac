# tessera_builds_cuda(RESULT CHOICE NVCC GPUS PIP): whether the CUDA back end is built. CHOICE is TESSERA_CUDA: ON, OFF or AUTO.
# The others say what is present: a CUDA compiler, device files of GPUs, and pip, which builds the Python package. ON is an error
# without a compiler. AUTO needs a compiler and a GPU, so that a laptop with a stray toolkit does not pay for the compile. pip
# often builds a package in a container without a GPU, for a machine that has one: then AUTO needs only the compiler.
function(tessera_builds_cuda result choice nvcc gpus pip)
  set(built OFF)
  if(choice STREQUAL "AUTO")
    if(nvcc AND (gpus OR pip))
      set(built ON)
    endif()
  elseif(choice)
    if(NOT nvcc)
      message(FATAL_ERROR "TESSERA_CUDA is ON but no CUDA compiler was found: install the CUDA toolkit, or set CUDACXX")
    endif()
    set(built ON)
  endif()
  set(${result} ${built} PARENT_SCOPE)
endfunction()
