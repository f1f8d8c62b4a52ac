# `cmake --install`, so that find_package(tessera) works.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)

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
