# tessera_portable(TARGET): the program goes to build/portable, a folder that can be copied to another machine (same
# processor family, a glibc at least as new). Libraries that come as archives are linked statically. The others are copied
# beside the program (Debian 12 has no archives of fmt and Highway; libstdc++ is copied too). Only glibc and cuBLASLt must come
# from the other machine: cuBLASLt is searched for in the place of this machine's CUDA toolkit, then wherever the loader searches.
foreach(library pcre2-8 utf8proc fmt hwy)
  find_library(TESSERA_ARCHIVE_${library} ${CMAKE_STATIC_LIBRARY_PREFIX}${library}${CMAKE_STATIC_LIBRARY_SUFFIX})
  mark_as_advanced(TESSERA_ARCHIVE_${library})
  if(TESSERA_ARCHIVE_${library})
    list(APPEND tessera_archives ${TESSERA_ARCHIVE_${library}})
  endif()
endforeach()

function(tessera_portable target)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/portable
    BUILD_RPATH "$ORIGIN")
  # The archives come first and whole, so --as-needed drops their shared twins. The old DT_RPATH is used because the newer
  # kind would let LD_LIBRARY_PATH replace the libraries beside the program.
  if(tessera_archives)
    string(REPLACE ";" "," archives "${tessera_archives}")
    target_link_options(${target} PRIVATE "LINKER:--whole-archive,${archives},--no-whole-archive")
  endif()
  target_link_options(${target} PRIVATE LINKER:--as-needed,--disable-new-dtags)
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:${target}>
    -P ${PROJECT_SOURCE_DIR}/cmake/carry_libraries.cmake)
endfunction()

# The same for a program that is portable only with TESSERA_PORTABLE.
function(tessera_portable_if_asked target)
  if(TESSERA_PORTABLE)
    tessera_portable(${target})
  endif()
endfunction()
