#!/usr/bin/env bash
# Runs the CPU benchmarks and the speed bars. Arguments go to every Google Benchmark program.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh
ensure_packages build_packages test_packages
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DTESSERA_BENCH=ON -DTESSERA_TESTS=ON
cmake --build build
for program in build/bin/bench_*; do
  echo "== $(basename "$program")"
  case "$program" in
    */bench_bars) "$program" ;;
    */bench_generate) echo "not run: it needs a model or a shape; see $program --help and the scripts in bench/peers" ;;
    *) "$program" "$@" ;;
  esac
done
