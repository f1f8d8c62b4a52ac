#!/usr/bin/env bash
# Runs every test that needs a GPU, a minute of random calls, and a small set of tests under compute-sanitizer, and prints
# the line for docs/results/h200/tests.md. Run it on a machine with a GPU. The folder may have been built elsewhere and copied here.
#   scripts/gpu_check.sh [FOLDER OF test_gpu]      default: the folder of this script, or build/portable
# It needs an NVIDIA driver, cuBLASLt (from a CUDA toolkit, or from a Python package such as PyTorch's) and compute-sanitizer
# (from a toolkit; without it that part is reported as not run, and the script fails). NCCL (from the same places) is used
# if it is found.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -gt 0 ]; then folder=$1; elif [ -x "$here/test_gpu" ]; then folder=$here; else folder=$here/../build/portable; fi
test_gpu=$folder/test_gpu
if [ ! -x "$test_gpu" ]; then
  echo "gpu_check.sh: $test_gpu does not exist: build the targets test_gpu and test_random with cmake -DTESSERA_CUDA=ON, or name its folder" >&2
  exit 2
fi
if ! command -v nvidia-smi >/dev/null; then
  echo "gpu_check.sh: nvidia-smi was not found, so there is no NVIDIA driver: run this on a machine with a GPU" >&2
  exit 2
fi
nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv,noheader || exit 2

# find_library NAME: prints the folder of a library that the loader does not find.
find_library() {
  local place
  for place in /usr/local/cuda/lib64 /usr/local/cuda*/lib64 /usr/local/cuda*/lib /usr/local/cuda*/targets/*/lib /opt/cuda/lib64 \
    $(python3 -c 'import site, sys
for packages in dict.fromkeys([*site.getsitepackages(), site.getusersitepackages(), *sys.path]):
    print(packages + "/nvidia/*/lib")' 2>/dev/null); do
    if [ -e "$place/$1" ]; then echo "$place"; return 0; fi
  done
  return 1
}
for library in $(ldd "$test_gpu" | sed -n 's/^\s*\(\S*\) => not found.*/\1/p'); do
  if ! place=$(find_library "$library"); then
    echo "gpu_check.sh: $library was not found by the loader, in a CUDA toolkit under /usr/local, or in Python's nvidia" \
      "packages: install it, or add its folder to LD_LIBRARY_PATH" >&2
    exit 2
  fi
  echo "$library: $place"
  export LD_LIBRARY_PATH=$place${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
# NCCL is opened by name. Without it the tests that use it are reported as skipped.
if place=$(find_library libnccl.so.2); then
  echo "libnccl.so.2: $place"
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$place
fi

# TESSERA_CHECK_LOGS names a folder that keeps all output; without it, a summary and the logs of failures are shown.
if [ -n "${TESSERA_CHECK_LOGS:-}" ]; then
  logs=$TESSERA_CHECK_LOGS
  mkdir -p "$logs" || exit 2
  if [ -n "$(ls -A "$logs")" ]; then  # what an earlier run left would be counted as this one's
    echo "gpu_check.sh: TESSERA_CHECK_LOGS names $logs, which is not empty: name a new folder" >&2
    exit 2
  fi
else
  logs=$(mktemp -d)
  trap 'rm -rf "$logs"' EXIT
fi
# number WORD LOG...: the number of tests that the logs count as PASSED or SKIPPED, or all of them (=*).
number() {
  local word=$1
  shift
  cat "$@" | sed -n "s/^\[ *$word *\] \([0-9]*\) tests\?\([.]\|, listed below\| from .* ran\).*/\1/p" | awk '{ sum += $1 } END { print sum + 0 }'
}

if [ -z "${TESSERA_TEST_DATA:-}" ] && [ ! -d "$folder/data" ]; then export TESSERA_TEST_DATA=$here/../tests/data; fi
# The tests run first, in as many processes as the machine has cores for, because most of their time is spent on the CPU. The
# sanitizers begin when the tests have ended, with random calls beside them: processes take turns on the GPU, and the tests took
# six times as long beside six processes of the sanitizers. Tests that check the GPU's free memory run last, alone.
of_memory='*/OutOfMemory.*:*/StreamMemory.*:*/CudaLostTest.*'
shards=$(($(nproc) > 5 ? $(nproc) - 2 : 4))
tests=()
for ((i = 0; i < shards; i++)); do
  (GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i "$test_gpu" --gtest_filter="*/cuda*-$of_memory" >"$logs/tests.$i" 2>&1
    echo $? >"$logs/status.$i") &
  tests+=($!)
done

# show_tests LOG...: the part of the tests' output that a person wants to see.
show_tests() {
  cat "$@" | grep -v -E '^\[( RUN|       OK|-----)|^$|Running main|^Note: |Global test environment'
}
wait "${tests[@]}"
failed=0
echo "== tests ($SECONDS s)"
show_tests "$logs"/tests.*
echo "the slowest: $(cat "$logs"/tests.* | sed -n 's/^\[       OK \] \(.*\) (\([0-9]*\) ms)$/\2 ms \1/p' | sort -rn | head -4 | paste -sd, | sed 's/,/, /g')"

# One test of each kernel, because the tools make a kernel ten to a hundred times slower.
few='*/NormTest.DtypesAndLayouts/cuda:*/NormTest.WorksInPlace/cuda:*/NormTest.WidthsOfWholePieces/cuda'
few+=':*/RotaryTest.DtypesLayoutsAndPositions/cuda:*/RotaryAppendTest.ShapesOfModels/cuda:*/SelectTest.RowsInParts/cuda'
few+=':*/EmbeddingTest.DtypesAndLayouts/cuda:*/SoftmaxTest.OddSizes/cuda:*/SelectTest.DtypesAndLayouts/cuda'
few+=':*/AttentionTest.GroupedHeads/cuda:*/AttentionLayoutTest.PagesAgainst*/cuda:*/AttentionLayoutTest.RaggedBatchA*/cuda'
few+=':*/AttentionBackwardTest.GroupedHeads/cuda:*/LinearTest.Ranks/cuda:*/LinearTest.NanStaysInItsRow/cuda'
few+=':*/GatedLinearTest.DtypesLayouts*/cuda:*/DequantizeTest.IntoF16*/cuda:*/CudaLinearTest.TraceTellsTheKernel/cuda:*/CudaTilesTest.StreamedLayouts*/cuda:*/CudaRowTest.OneRowByItsOwnKernel/cuda:*/CudaTilesTest.ManyRows/cuda:*/CudaWideTest.BordersOfTiles/cuda:*/CudaMmaTest.Layouts*/cuda:*/CudaMmaTest.WarpsAndBlocks*/cuda'
few+=':*/CudaLinearTest.DecodesTheBitsOfTheCpu/cuda:*/CudaLinearTest.Encod*/cuda:*/KvAppendTest.*/cuda'
few+=':*/TilePiecesTest.*/cuda:*/HopperTileTest.*/cuda:*/HopperCopiesTest.*/cuda:*/HopperWarpsTest.*/cuda:*/CudaStripsTest.Lay*/cuda:*/AttentionKernelsTest.RowsThatSeeNothing/cuda:*/HopperPatternsTest.RowsThat*/cuda:*/HopperPatternsTest.Layouts*/cuda:*/SampleTest.TiesGoToTheLowerIds/cuda:*/NormTest.DropsTheElements*/cuda'
few+=':*/SampleRowsTest.OddSizes*/cuda:*/SampleRowsTest.DrawsWithout*/cuda:*/AdjustLogitsTest.OddSizes*/cuda:*/TokenCountsTest.*/cuda:*/LogprobsTest.OddSizes/cuda:*/DeviceDrawsTest.Drafts*/cuda'
few+=':*/ModelGolden.EveryLevelInOddSteps/cuda_neox_parallel:*/ModelGolden.EveryLevelInOddSteps/cuda_llama_int8_zero_points'
few+=':*/DecodeLayersTest.AWindow*/cuda:*/DecodeLayersOpTest.SerialLayers/cuda:*/CudaCaptureTest.AGraphOfAllLayers*/cuda:*/AppendAttentionTest.PagesHoles*/cuda:*/AppendAttentionTest.BitsDoNot*/cuda'
few+=':*/Attention8BitTest.KeysAreRotated*/cuda:*/Attention8BitTest.PagesThat*/cuda:*/PartialSumsTest.AddsTo*/cuda:*/PartialSumsTest.FillsEvery*/cuda'
few+=':*/HopperDecodeCodesTest.LostPages*/cuda:*/HopperDecodeTest.TwiceTheSameBits/cuda'
few+=':*/RanksTest.ASplitModel*/cuda:*/SideStreamTest.*/cuda:*/AttentionBackwardTest.SixteenBitsUnder*/cuda:*/AttentionPagesTest.ASequence*/cuda'
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1)
clean=() dirty=()
# Each tool in several processes, a few of which run at a time. racecheck, which takes longest, comes first.
tools=(racecheck memcheck initcheck) pieces=5
if [ -z "$sanitizer" ]; then tools=(); fi
# racecheck cannot judge warps that arrive at a barrier and go on, as those of cuda.persistent do: it reports hazards in a program
# that has nothing else (docs/notebook/gpu_tests.md). On the emulated GPU, tests check that kernel's barriers.
not_for_racecheck='*DecodeLayers*:*AGraphOfAllLayers*'
export sanitizer test_gpu few not_for_racecheck pieces logs
sanitize() {  # sanitize TOOL PIECE
  local filter=$few
  if [ "$1" = racecheck ]; then filter+=-$not_for_racecheck; fi
  # A process takes up to a minute. One that hangs is ended, and the end of its log names the test.
  GTEST_TOTAL_SHARDS=$pieces GTEST_SHARD_INDEX=$2 timeout -s KILL 240 "$sanitizer" --tool "$1" --report-api-errors no \
    --error-exitcode 9 "$test_gpu" --gtest_filter="$filter" >"$logs/$1.$2" 2>&1
  echo $? >"$logs/$1.status.$2"
}
export -f sanitize
for tool in "${tools[@]}"; do
  for ((i = 0; i < pieces; i++)); do echo "$tool $i"; done
done | xargs -r -P $(($(nproc) > 12 ? 8 : 4)) -L 1 bash -c 'sanitize "$@"' sanitize &

# New calls in every run. The line of one that fails repeats it: test_random --device cuda --case "...".
echo "== random calls"
random="test_random is not there"
if [ -x "$folder/test_random" ]; then
  "$folder/test_random" --seconds 60 --seed "$(date +%s)" --device cuda >"$logs/random" 2>&1 || failed=1
  cat "$logs/random"
  random=$(tail -1 "$logs/random")
else
  failed=1
fi

wait
echo "== tests of memory ($SECONDS s)"
only_cuda=$(tr : '\n' <<<"$of_memory" | sed 's|$|/cuda*|' | paste -sd :)
"$test_gpu" --gtest_filter="$only_cuda" >"$logs/tests.memory" 2>&1
echo $? >"$logs/status.memory"
show_tests "$logs/tests.memory"
early=
for status in "$logs"/status.*; do
  if [ "$(cat "$status")" -ne 0 ]; then failed=1; fi
done
for log in "$logs"/tests.*; do
  if ! grep -q '^\[=*\].* ran' "$log"; then early="ended early"; fi
done
passed=$(number PASSED "$logs"/tests.*) skipped=$(number SKIPPED "$logs"/tests.*)
wrong=${early:-$(($(number '=*' "$logs"/tests.*) - passed - skipped))}
if [ "$passed" -eq 0 ]; then failed=1; fi  # all were skipped: this did not test a GPU

if [ -z "$sanitizer" ]; then
  echo "== compute-sanitizer: not run, because it is neither on PATH nor in /usr/local/cuda*/bin"
  dirty+=("compute-sanitizer not run")
fi
for tool in "${tools[@]}"; do
  echo "== compute-sanitizer --tool $tool"
  few_passed=$(number PASSED "$logs/$tool".[0-9]) wrong_pieces=
  for ((i = 0; i < pieces; i++)); do
    log=$logs/$tool.$i of_piece=$(cat "$logs/$tool.status.$i" || echo unfinished)
    grep -E 'ERROR SUMMARY|RACECHECK SUMMARY|PASSED|FAILED|SKIPPED' "$log" || tail -4 "$log"
    # After an internal error, launches were not checked, whatever the exit status is.
    if grep -q 'Internal Sanitizer Error' "$log"; then
      of_piece+=" with an internal error of the tool"
      grep -E '^\[ RUN|Internal Sanitizer Error' "$log" | grep -B 1 'Internal Sanitizer Error'  # and the test
    elif [ "$of_piece" = 0 ] && ! grep -q 'SUMMARY: 0 ' "$log"; then
      of_piece+=" without a summary of 0 errors"
    fi
    if [ "$of_piece" != 0 ]; then wrong_pieces+="${wrong_pieces:+; }$of_piece"; fi
    if [ "$of_piece" != 0 ] || [ "$few_passed" -eq 0 ]; then tail -40 "$log"; fi
  done
  if [ "$few_passed" -eq 0 ]; then wrong_pieces+="${wrong_pieces:+; }no test passed"; fi
  if [ -z "$wrong_pieces" ]; then clean+=("$tool on $few_passed tests"); else dirty+=("$tool FAILED ($wrong_pieces)"); fi
done

# list WORD...: prints the words, joined with commas.
list() { local IFS=,; echo "$*" | sed 's/,/, /g'; }
result=
if [ ${#clean[@]} -gt 0 ]; then result="$(list "${clean[@]}"): 0 errors, 0 hazards"; fi
if [ ${#dirty[@]} -gt 0 ]; then failed=1 result+="${result:+; }$(list "${dirty[@]}")"; fi
commit=$(cat "$folder/commit" 2>/dev/null || git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)
echo "== for docs/results/h200/tests.md"
echo "random calls: $random"
echo "| $(date -u +%F) | $commit | $passed | $skipped | $wrong | $result |"
exit $failed
