# tessera_gpu_architectures(RESULT CAPABILITIES): the architectures to build for. CAPABILITIES is what nvidia-smi lists, a
# compute capability like 9.0 on each line. The result is empty if there is no GPU that Tessera supports.
function(tessera_gpu_architectures result capabilities)
  set(architectures)
  string(REGEX MATCHALL "[^\n]+" lines "${capabilities}")
  foreach(line IN LISTS lines)
    string(STRIP "${line}" line)
    if(NOT line MATCHES "^([0-9]+)\\.([0-9])$")
      continue()  # not a number: nvidia-smi could not report it
    endif()
    set(architecture ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
    if(architecture LESS 80)  # bf16 arithmetic begins with Ampere
      message(STATUS "A GPU of compute capability ${line} is older than 8.0: Tessera is not built for it")
      continue()
    endif()
    if(architecture EQUAL 90)
      set(architecture 90a)  # wgmma and related instructions exist only in the architecture-specific variant
    endif()
    list(APPEND architectures ${architecture}-real)
  endforeach()
  list(REMOVE_DUPLICATES architectures)
  set(${result} "${architectures}" PARENT_SCOPE)
endfunction()
