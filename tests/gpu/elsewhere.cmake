# For cmake -P: copies FOLDER to WORK_DIR and runs test_gpu there, in an empty environment with any GPU hidden. It must
# need nothing but glibc, cuBLASLt and the files beside it. It must start (without a driver if the machine has none),
# skip every test and say why.
file(REMOVE_RECURSE ${WORK_DIR})
file(COPY ${FOLDER}/ DESTINATION ${WORK_DIR} PATTERN data EXCLUDE)

execute_process(COMMAND env -i ldd ${WORK_DIR}/test_gpu OUTPUT_VARIABLE needed RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "ldd cannot read test_gpu")
endif()
string(REGEX MATCHALL "[^\n]+" needed "${needed}")
foreach(line IN LISTS needed)
  string(STRIP "${line}" line)
  if(NOT line MATCHES "^(linux-vdso|/lib.*/ld-linux|lib(c|m|dl|rt|pthread)\\.so|libcublasLt\\.so)"
      AND NOT line MATCHES "=> ${WORK_DIR}/")
    message(FATAL_ERROR "test_gpu needs more than glibc and cuBLASLt on the other machine: ${line}")
  endif()
endforeach()

execute_process(COMMAND env -i CUDA_VISIBLE_DEVICES=-1 ${WORK_DIR}/test_gpu WORKING_DIRECTORY / RESULT_VARIABLE status
  OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT status EQUAL 0 OR NOT output MATCHES "no usable GPU: .*\\[  PASSED  \\] 0 tests.*\\[  SKIPPED \\] [1-9][0-9]* tests")
  message(FATAL_ERROR "test_gpu ended with ${status} instead of skipping every test:\n${output}")
endif()

# The program reads the data beside it: with only one golden there, it has only the cases of that one.
file(COPY ${FOLDER}/data/goldens/neox-parallel DESTINATION ${WORK_DIR}/data/goldens)
execute_process(COMMAND env -i ${WORK_DIR}/test_gpu --gtest_list_tests --gtest_filter=*ModelGolden* OUTPUT_VARIABLE output)
if(NOT output MATCHES "cuda_neox_parallel" OR output MATCHES "cuda_llama")
  message(FATAL_ERROR "test_gpu does not read the goldens beside it:\n${output}")
endif()
