# Google Highway: SIMD with run-time dispatch. Every kernel is compiled once for each target that is left here.
find_package(PkgConfig REQUIRED)
pkg_check_modules(tessera_hwy REQUIRED IMPORTED_TARGET libhwy>=1.0.3)

add_library(tessera_highway INTERFACE)
# By name, so that an installed Tessera finds the Highway of its own machine. Its compile flags are not needed.
target_link_libraries(tessera_highway INTERFACE $<LINK_ONLY:PkgConfig::tessera_hwy>)
# Four x86 targets cover the machines people have: the baseline, SSE4, AVX2 and AVX-512 with VNNI (AVX3_DL). Others are left out
# because each costs compile time; by Highway's bit numbers: SPR (4), ZEN4 (6), AVX3 without VNNI (8), SSSE3 (12).
target_compile_definitions(tessera_highway INTERFACE
  HWY_WANT_AVX3_DL "HWY_DISABLED_TARGETS=((1LL<<4)|(1LL<<6)|(1LL<<8)|(1LL<<12))")
if(TESSERA_SANITIZE STREQUAL "thread")  # threads race, or not, in the same way for every target: the baseline will do
  target_compile_definitions(tessera_highway INTERFACE HWY_COMPILE_ONLY_STATIC)
endif()
