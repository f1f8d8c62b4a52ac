# cmake -P: installs BUILD_DIR, moves what was installed elsewhere, looks for paths of this machine in it, then builds and runs
# EXAMPLE_DIR against it: with CMake, and with pkg-config and COMPILER.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    message(FATAL_ERROR "failed: ${ARGV}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# machine_paths(RESULT TEXT): the absolute paths in a text. A path that follows a variable is relative to it.
function(machine_paths result text)
  string(REGEX MATCHALL "(^|[ \t\n\"';:=,(IL])/(usr|home|opt|lib|lib64|tmp|root|work|mnt|var|srv)/[^ \n\"';]*" found "${text}")
  set(${result} "${found}" PARENT_SCOPE)
endfunction()
machine_paths(found "set(X \"/usr/lib/libhwy.so\")")  # a test that can fail
machine_paths(relative "set(X \"\${_IMPORT_PREFIX}/lib/libtessera.a\")")
if(NOT found OR relative)
  message(FATAL_ERROR "machine_paths finds '${found}' in an absolute path and '${relative}' in a relative one")
endif()

file(REMOVE_RECURSE ${WORK_DIR}/prefix ${WORK_DIR}/moved ${WORK_DIR}/example ${WORK_DIR}/by_pkg_config)
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
file(RENAME ${WORK_DIR}/prefix ${WORK_DIR}/moved)

file(GLOB_RECURSE installed ${WORK_DIR}/moved/*.cmake ${WORK_DIR}/moved/*.pc ${WORK_DIR}/moved/*.h)
list(LENGTH installed count)
if(count LESS 30)
  message(FATAL_ERROR "only ${count} text files are installed: ${installed}")
endif()
foreach(file IN LISTS installed)
  file(READ ${file} text)
  machine_paths(found "${text}")
  if(found)
    message(FATAL_ERROR "${file} holds paths of this machine: ${found}")
  endif()
endforeach()

run(${CMAKE_COMMAND} -S ${EXAMPLE_DIR} -B ${WORK_DIR}/example -G ${GENERATOR}
  -DCMAKE_PREFIX_PATH=${WORK_DIR}/moved -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/example)
run(${WORK_DIR}/example/example)

file(GLOB_RECURSE pc_file ${WORK_DIR}/moved/*/tessera.pc)
get_filename_component(pc_dir ${pc_file} DIRECTORY)
run(${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${pc_dir} pkg-config --cflags --libs tessera)
string(STRIP "${output}" flags)
separate_arguments(flags UNIX_COMMAND "${flags}")
if(CUDA_LIBRARIES)
  list(APPEND flags -L${CUDA_LIBRARIES})
endif()
run(${COMPILER} ${EXAMPLE_DIR}/main.cc -o ${WORK_DIR}/by_pkg_config ${flags})
run(${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${CUDA_LIBRARIES}:$ENV{LD_LIBRARY_PATH} ${WORK_DIR}/by_pkg_config)
