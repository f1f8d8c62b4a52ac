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

# step NAME: begins a part of the work and says how long the one before it took, on the clock and on the processors. Where the
# machine has other work to do, the latter says what the step takes: half of it on the clock, if both cores have something to do.
began=0 spent=0 name= ticks_per_second=$(getconf CLK_TCK)
processor_seconds() {  # of all processes that have ended; man 5 proc: cutime and cstime
  local stat
  read -r stat <"/proc/$$/stat"
  read -ra stat <<<"${stat##*) }"
  seconds=$(((stat[13] + stat[14]) / ticks_per_second))
}
step() {
  local now=$SECONDS seconds
  processor_seconds
  if [ -n "$name" ]; then
    printf -- '-- %s: %d min %02d s, processor time %d min %02d s\n' "$name" $(((now - began) / 60)) $(((now - began) % 60)) \
      $(((seconds - spent) / 60)) $(((seconds - spent) % 60))
  fi
  printf '\n== %s (at %d min %02d s)\n' "$1" $((now / 60)) $((now % 60))
  began=$now spent=$seconds name=$1
}

# beside LOG COMMAND...: begins a command that has one thread, or waits most of its time, beside the next ones. together waits
# for it, shows what it printed, and fails if it failed.
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
beside() {
  beside_log=$1
  mkdir -p "$(dirname "$1")"
  shift
  "$@" >"$beside_log" 2>&1 &
  beside_process=$!
}
together() {
  local status=0
  wait "$beside_process" || status=$?
  cat "$beside_log"
  return $status
}

step "packages"
ensure_packages build_packages test_packages docs_packages
ensure_packages browser_packages || echo "There is no chromium: the tests of pages are skipped."
ensure_packages parallel_packages || echo "There is no MPI: --parallel and its tests are not built."

cuda=OFF emulated=OFF compile_check=OFF
if ! command -v nvcc >/dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then
  export CUDACXX=/usr/local/cuda/bin/nvcc  # where the toolkit's installer puts it, often not on PATH
fi
if command -v "${CUDACXX:-nvcc}" >/dev/null; then
  cuda=ON  # a compile check even where there is no GPU; the tests that need one report as skipped
  if [ "$(uname -m)" = x86_64 ]; then emulated=EMULATED; fi  # and under the sanitizers the kernels run on the CPU
  if ! compgen -G "/dev/nvidia[0-9]*" >/dev/null; then compile_check=ON; fi  # nobody waits for fast kernels here
fi
step "build, CUDA $cuda; beside it the virtual environments"
environments() {  # unpacking gigabytes of packages keeps one core busy for two minutes
  ensure_venv build/python-venv tests/python/requirements.txt
  ensure_venv build/server-venv tests/server/requirements.txt
}
beside build/environments.log environments
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DTESSERA_CUDA=$cuda -DTESSERA_TESTS=ON -DTESSERA_BENCH=ON \
  -DTESSERA_WERROR=ON -DTESSERA_UNITY=ON -DTESSERA_CUDA_COMPILE_CHECK=$compile_check
# A compile check leaves out optimisations, and ptxas notes each product that is slow without them.
cmake --build build 2>&1 | grep -v "ptxas info .*Potential Performance Loss"
together

step "tests"
ctest --test-dir build --output-on-failure -j "$(nproc)" -LE perf
ctest --test-dir build --output-on-failure -L perf --repeat until-pass:3  # another program may take a core for a moment

step "Python package; beside it the server: the openai client, a browser, raw sockets"
beside build/server-tests/run.log tests/server/run.sh
tests/python/run.sh
together

if [ "$fast" = no ]; then
  step "format and lint; beside them the API reference"
  beside build/docs.log make docs
  scripts/lint.sh
  python3 scripts/check_docs.py
  together

  step "build with address and undefined-behaviour sanitizers"
  cmake --preset asan -DTESSERA_CUDA=$emulated -DTESSERA_UNITY=ON
  cmake --build build-asan
  step "fast tests under the sanitizers"
  ctest --test-dir build-asan --output-on-failure -j "$(nproc)" -LE "slow|perf"

  step "build for the thread sanitizer, and the fuzz targets"
  cmake --preset tsan -DTESSERA_UNITY=ON
  cmake --build build-tsan --target test_threads tessera_app
  cmake --preset fuzz -DTESSERA_UNITY=ON
  cmake --build build-fuzz
  step "threads and server under the thread sanitizer; beside them hostile files, then the server under the address sanitizer"
  hostile() {
    tests/fuzz/run.sh 60
    tests/server/run.sh build-asan/bin/tessera --sockets-only --tiny --malformed 1000 --droppers 100
  }
  beside build-fuzz/run.log hostile
  setarch -R build-tsan/bin/test_threads  # the sanitizer of older compilers wants addresses that are not random
  tests/server/run.sh build-tsan/bin/tessera --sockets-only --tiny --malformed 500 --droppers 100
  together
fi

step "all passed"
