# cmake -P: puts into FOLDER, beside test_gpu, what it needs on the other machine: the tests' data, the script that runs it
# and reports, and the commit it was built from, for the report.
file(COPY ${SOURCE_DIR}/tests/data ${SOURCE_DIR}/scripts/gpu_check.sh DESTINATION ${FOLDER})
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty --exclude=* OUTPUT_VARIABLE commit
  RESULT_VARIABLE no_git ERROR_QUIET)
file(REMOVE ${FOLDER}/commit)
if(NOT no_git)
  file(WRITE ${FOLDER}/commit ${commit})
endif()
