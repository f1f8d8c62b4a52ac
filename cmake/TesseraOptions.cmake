# Build type, warnings, sanitizers, compiler cache.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

find_program(TESSERA_CCACHE ccache)
if(TESSERA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TESSERA_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${TESSERA_CCACHE})
endif()

# The options that every target of the project compiles with. Programs that link the library do not get them.
add_library(tessera_options INTERFACE)
set(warnings -Wall -Wextra -Wpedantic -Wnon-virtual-dtor -Wold-style-cast -Wcast-qual -Wextra-semi
  $<$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>:-Wshadow>)
if(TESSERA_WERROR)
  list(APPEND warnings -Werror)
endif()
target_compile_options(tessera_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${warnings}>)

if(TESSERA_SANITIZE STREQUAL "address")
  # GCC mistakes what the sanitizer adds for reads of uninitialised memory.
  set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -Wno-maybe-uninitialized)
elseif(TESSERA_SANITIZE STREQUAL "thread")
  set(sanitizers -fsanitize=thread -fno-omit-frame-pointer)
elseif(TESSERA_SANITIZE)
  message(FATAL_ERROR "TESSERA_SANITIZE is '${TESSERA_SANITIZE}'; it can be address or thread")
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${sanitizers}>")
add_link_options(${sanitizers})
