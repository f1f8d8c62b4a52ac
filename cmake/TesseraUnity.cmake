# tessera_unity(TARGET): compiles the C++ sources of a target several at a time, if TESSERA_UNITY is ON. ./test.sh turns it on:
# most of a small source's compile time is headers. Leave it off to edit code: one change would compile a whole batch.
option(TESSERA_UNITY "Compile several C++ sources as one file: faster from scratch, slower after a change" OFF)
set(TESSERA_UNITY_SIZE 12)  # sources to a batch; larger ones leave too little to do side by side

# "NUMBER FILE" for each file (scripts/batches.py).
function(tessera_batches result size)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/batches.py ${size} ${ARGN}
    OUTPUT_VARIABLE lines OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" lines "${lines}")
  set(${result} "${lines}" PARENT_SCOPE)
endfunction()

function(tessera_unity target)
  if(NOT TESSERA_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  set(files)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder})
    # Sources of src/cpu and their tests include themselves once for each SIMD target.
    if(source MATCHES "\\.cc$" AND NOT source MATCHES "/(src|tests)/cpu/")
      list(APPEND files ${source})
    endif()
  endforeach()
  if(NOT files)
    return()
  endif()
  tessera_batches(lines ${TESSERA_UNITY_SIZE} ${files})
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([0-9]+) (.*)$" _ "${line}")
    set_source_files_properties(${CMAKE_MATCH_2} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${CMAKE_MATCH_1})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # GCC warns of types in an unnamed namespace wherever the source is not the main file. (-Wshadow would warn of local names that
  # another source of the batch has too: cmake/TesseraOptions.cmake leaves it out.)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage;-Wshadow=local>")
endfunction()

# tessera_unity_cuda(TARGET): the same for its kernels. CMake 3.25 cannot do it for CUDA. nvcc takes five seconds for the headers
# of a source, which is most of its time in a compile check. With all optimisations, that holds only for the instances of
# attention kernels: others take a minute each, and have to be compiled side by side. Kernels for the emulated GPU
# (tests/emulated/emulate.cmake) are little work for g++ too. (The other kernels of attention share names with its headers.)
function(tessera_unity_cuda target)
  if(NOT TESSERA_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  set(files)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder})
    get_source_file_property(own_options ${source} TARGET_DIRECTORY ${target} COMPILE_OPTIONS)
    if(source MATCHES "/attention/.*/instances/.*\\.cu$" OR (source MATCHES "\\.cu$" AND NOT source MATCHES "/attention/" AND
        (TESSERA_CUDA_EMULATED OR (TESSERA_CUDA_COMPILE_CHECK AND NOT own_options))))
      list(APPEND files ${source})
    endif()
  endforeach()
  tessera_batches(lines 5 ${files})
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([0-9]+) (.*)$" _ "${line}")
    string(APPEND batch_${CMAKE_MATCH_1} "#include \"${CMAKE_MATCH_2}\"\n")
    set_source_files_properties(${CMAKE_MATCH_2} TARGET_DIRECTORY ${target} PROPERTIES HEADER_FILE_ONLY ON)
    set(last ${CMAKE_MATCH_1})
  endforeach()
  foreach(number RANGE ${last})
    set(batch ${PROJECT_BINARY_DIR}/CMakeFiles/unity_cuda/${target}_${number}.cu)
    file(CONFIGURE OUTPUT ${batch} CONTENT "${batch_${number}}" @ONLY)
    target_sources(${target} PRIVATE ${batch})
    if(TESSERA_CUDA_EMULATED)
      tessera_emulate(${target} ${batch})
    endif()
  endforeach()
endfunction()

# tessera_compile_fast(TARGET LEVEL): optimises code around the library only as -O0 or -O1 does, in builds for testing: those of
# ./test.sh and those with sanitizers. The slow work is in the library, the references and the tests' helpers.
function(tessera_compile_fast target level)
  if(TESSERA_UNITY OR TESSERA_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${level}>)
  endif()
endfunction()
