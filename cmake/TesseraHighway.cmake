# Google Highway: SIMD with run-time dispatch. Every kernel is compiled once for each target that is left here.
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwy REQUIRED libhwy>=1.0.3)
find_library(TESSERA_HWY_LIBRARY hwy HINTS ${hwy_LIBRARY_DIRS} REQUIRED)

add_library(tessera_highway INTERFACE)
target_link_libraries(tessera_highway INTERFACE ${TESSERA_HWY_LIBRARY})
# Four x86 targets cover the machines people have: the baseline, SSE4, AVX2 and AVX-512 with VNNI (AVX3_DL). Left out, by
# Highway's bit numbers, because each costs compile time: SPR (4), ZEN4 (6), AVX3 without VNNI (8), SSSE3 (12).
target_compile_definitions(tessera_highway INTERFACE
  HWY_WANT_AVX3_DL "HWY_DISABLED_TARGETS=((1LL<<4)|(1LL<<6)|(1LL<<8)|(1LL<<12))")
