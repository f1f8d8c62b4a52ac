# cmake -P: carries FOLDER to WORK_DIR and runs test_gpu there, in an empty environment with any GPU hidden: it needs nothing
# but glibc, cuBLASLt and what lies beside it, starts (without a driver where the machine has none), skips every test and says why.
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
    message(FATAL_ERROR "test_gpu needs more of the other machine than glibc and cuBLASLt: ${line}")
  endif()
endforeach()

execute_process(COMMAND env -i CUDA_VISIBLE_DEVICES=-1 ${WORK_DIR}/test_gpu WORKING_DIRECTORY / RESULT_VARIABLE status
  OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT status EQUAL 0 OR NOT output MATCHES "no usable GPU: .*\\[  PASSED  \\] 0 tests.*\\[  SKIPPED \\] [1-9][0-9]* tests")
  message(FATAL_ERROR "test_gpu ended with ${status} instead of skipping every test:\n${output}")
endif()

# The data beside the program is what it reads: with one golden there, there are cases of that one alone.
file(COPY ${FOLDER}/data/goldens/neox-parallel DESTINATION ${WORK_DIR}/data/goldens)
execute_process(COMMAND env -i ${WORK_DIR}/test_gpu --gtest_list_tests --gtest_filter=*ModelGolden* OUTPUT_VARIABLE output)
if(NOT output MATCHES "cuda_neox_parallel" OR output MATCHES "cuda_llama")
  message(FATAL_ERROR "test_gpu does not read the goldens that lie beside it:\n${output}")
endif()
