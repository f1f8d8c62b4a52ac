#!/usr/bin/env bash
# Builds everything and runs every test: the one command that says whether the tree is good.
#   ./test.sh            all of it
#   ./test.sh --fast     without the sanitizer build, the fuzzing and the lint
set -euo pipefail
cd "$(dirname "$0")"
source scripts/setup.sh

fast=no
case "${1:-}" in
  "") ;;
  --fast) fast=yes ;;
  *) echo "test.sh: unknown option '$1'; the only one is --fast" >&2; exit 2 ;;
esac

# step NAME: begins a part of the work and says how long the one before it took.
began=0 name=
step() {
  local now=$SECONDS
  if [ -n "$name" ]; then printf -- '-- %s: %d min %02d s\n' "$name" $(((now - began) / 60)) $(((now - began) % 60)); fi
  printf '\n== %s (at %d min %02d s)\n' "$1" $((now / 60)) $((now % 60))
  began=$now name=$1
}

step "packages"
ensure_packages build_packages test_packages docs_packages
ensure_packages browser_packages || echo "There is no chromium: the tests of pages are skipped."

cuda=OFF emulated=OFF
if ! command -v nvcc >/dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then
  export CUDACXX=/usr/local/cuda/bin/nvcc  # where the toolkit's installer puts it, often not on PATH
fi
if command -v "${CUDACXX:-nvcc}" >/dev/null; then
  cuda=ON  # a compile check even where there is no GPU; the tests that need one report as skipped
  if [ "$(uname -m)" = x86_64 ]; then emulated=EMULATED; fi  # and under the sanitizers the kernels run on the CPU
fi
step "build, CUDA $cuda"
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DTESSERA_CUDA=$cuda -DTESSERA_TESTS=ON -DTESSERA_BENCH=ON \
  -DTESSERA_WERROR=ON -DTESSERA_UNITY=ON
cmake --build build

step "tests"
ctest --test-dir build --output-on-failure -j "$(nproc)"

step "server: the openai client, a browser, raw sockets"
tests/server/run.sh

step "Python package"
tests/python/run.sh

if [ "$fast" = no ]; then
  step "format and lint"
  scripts/lint.sh
  python3 scripts/check_docs.py

  step "API reference"
  make docs

  step "build with address and undefined-behaviour sanitizers"
  cmake --preset asan -DTESSERA_CUDA=$emulated -DTESSERA_UNITY=ON
  cmake --build build-asan
  step "fast tests under the sanitizers"
  ctest --test-dir build-asan --output-on-failure -j "$(nproc)" -LE "slow|perf"
  step "server under the address sanitizer"
  tests/server/run.sh build-asan/bin/tessera --sockets-only --tiny --malformed 1000 --droppers 100

  step "one model in several threads, and the server, under the thread sanitizer"
  cmake --preset tsan -DTESSERA_UNITY=ON
  cmake --build build-tsan --target test_threads tessera_app
  setarch -R build-tsan/bin/test_threads  # the sanitizer of older compilers wants addresses that are not random
  tests/server/run.sh build-tsan/bin/tessera --sockets-only --tiny --malformed 500 --droppers 100

  step "fuzz targets: build, and one minute of hostile files"
  cmake --preset fuzz -DTESSERA_UNITY=ON
  cmake --build build-fuzz
  tests/fuzz/run.sh 60
fi

step "all passed"
