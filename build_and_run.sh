#!/usr/bin/env bash
# Builds Tessera and runs its demo. Works on a bare Debian 12 or Ubuntu 24.04 machine.
set -euo pipefail
cd "$(dirname "$0")"
source scripts/setup.sh

usage() {
  cat <<'TEXT'
Usage: ./build_and_run.sh [--build-only] [--cuda | --cpu] [-- ARGUMENTS]

Installs missing packages, builds build/bin/tessera, and runs it.

  --build-only   stop after the build
  --cuda         build the CUDA back end (default: build it if nvcc and a GPU are present)
  --cpu          build without CUDA
  -- ARGUMENTS   run this instead of the demo: ./build_and_run.sh -- generate "The old house"
TEXT
}

build_only=no
cuda=AUTO
arguments=(demo)
while [ $# -gt 0 ]; do
  case "$1" in
    --build-only) build_only=yes ;;
    --cuda) cuda=ON ;;
    --cpu) cuda=OFF ;;
    -h | --help) usage; exit 0 ;;
    --) shift; arguments=("$@"); break ;;
    *) echo "build_and_run.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

ensure_packages build_packages
if [ ! -f build/build.ninja ]; then
  # ./test.sh builds tests and benchmarks. A user who only wants the program does not wait for them, and the build does not
  # fail on a warning of an unknown compiler.
  cmake -S . -B build -G Ninja -DTESSERA_CUDA="$cuda" -DTESSERA_TESTS=OFF -DTESSERA_BENCH=OFF -DTESSERA_WERROR=OFF
elif [ "$cuda" != AUTO ]; then
  cmake -S . -B build -DTESSERA_CUDA="$cuda"
fi
cmake --build build
[ "$build_only" = yes ] && exit 0
echo
exec build/bin/tessera "${arguments[@]}"
