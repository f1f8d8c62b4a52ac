# cmake -P: copies every shared library that PROGRAM needs into its folder, except glibc's and CUDA's.
get_filename_component(folder ${PROGRAM} DIRECTORY)
# A conflict is a library that is here from the last build, and the same one of the system.
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${PROGRAM} RESOLVED_DEPENDENCIES_VAR libraries CONFLICTING_DEPENDENCIES_PREFIX twice
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|mvec|resolv)\\.so" "^libcu")
foreach(library IN LISTS libraries)
  get_filename_component(from ${library} DIRECTORY)
  if(NOT from STREQUAL folder)
    file(COPY ${library} DESTINATION ${folder} FOLLOW_SYMLINK_CHAIN)
  endif()
endforeach()
