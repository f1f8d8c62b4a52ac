# `cmake --install`, so that find_package(tessera) and pkg-config work. No installed file holds a path of this machine.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
set(TESSERA_LINKS_CUDA OFF)
if(TESSERA_HAVE_CUDA AND NOT TESSERA_CUDA_EMULATED)
  set(TESSERA_LINKS_CUDA ON)
endif()

install(TARGETS tessera EXPORT tessera_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tessera_options tessera_highway EXPORT tessera_targets)
install(DIRECTORY include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT tessera_targets NAMESPACE tessera:: DESTINATION ${package_dir})
if(TARGET tessera_app)
  install(TARGETS tessera_app RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(EXISTS ${PROJECT_SOURCE_DIR}/models/stories)  # the program looks for it in ../share (apps/tessera/default_model.cc)
    install(DIRECTORY models/stories DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera/models)
  endif()
endif()

configure_package_config_file(cmake/tesseraConfig.cmake.in ${PROJECT_BINARY_DIR}/tesseraConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tesseraConfig.cmake ${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
  DESTINATION ${package_dir})

# pkg-config has no way to find the CUDA toolkit: its libraries must lie where the linker looks (-L, LIBRARY_PATH).
set(TESSERA_PC_CUDA_LIBS "")
if(TESSERA_LINKS_CUDA)
  set(TESSERA_PC_CUDA_LIBS " -lcublasLt -lcudart_static -lrt -ldl")
endif()
file(RELATIVE_PATH TESSERA_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" TESSERA_PC_TO_PREFIX "${TESSERA_PC_TO_PREFIX}")
configure_file(cmake/tessera.pc.in ${PROJECT_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tessera.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
