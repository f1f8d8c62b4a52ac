# For cmake -P: fills FOLDER, beside test_gpu, with the files it needs on the other machine: the tests' data, the script
# that runs it and writes the report, and for the report the commit it was built from.
file(COPY ${SOURCE_DIR}/tests/data ${SOURCE_DIR}/scripts/gpu_check.sh DESTINATION ${FOLDER})
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty --exclude=* OUTPUT_VARIABLE commit
  RESULT_VARIABLE no_git ERROR_QUIET)
file(REMOVE ${FOLDER}/commit)
if(NOT no_git)
  file(WRITE ${FOLDER}/commit ${commit})
endif()
