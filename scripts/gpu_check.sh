#!/usr/bin/env bash
# Runs every test that needs a GPU, then a small set of them under compute-sanitizer. For a machine with a GPU; the test
# programs may have been built elsewhere.
#   scripts/gpu_check.sh [FOLDER OF THE TEST PROGRAMS]      (build/bin without one)
set -uo pipefail
cd "$(dirname "$0")/.."
bin=${1:-build/bin}
failed=0

report() {  # report NAME STATUS
  if [ "$2" -eq 0 ]; then echo "   $1: ok"; else echo "   $1: FAILED ($2)"; failed=1; fi
}

nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv,noheader || exit 1

echo "== tests"
export TESSERA_TEST_DATA=$PWD/tests/data
for program in test_quant test_ops test_modules test_cache test_model test_cuda; do
  "$bin/$program" --gtest_filter='*/cuda*' --gtest_brief=1
  report "$program" $?
done

# One test of each kernel; the tools slow a kernel down ten to a hundred times.
few='*/NormTest.DtypesAndLayouts/cuda:*/NormTest.WorksInPlace/cuda:*/RotaryTest.DtypesLayoutsAndPositions/cuda'
few+=':*/EmbeddingTest.DtypesAndLayouts/cuda:*/SoftmaxTest.OddSizes/cuda:*/SelectTest.DtypesAndLayouts/cuda'
few+=':*/AttentionTest.GroupedHeads/cuda:*/AttentionLayoutTest.PagesAgainst*/cuda:*/AttentionLayoutTest.RaggedBatchA*/cuda'
few+=':*/AttentionBackwardTest.GroupedHeads/cuda:*/LinearTest.Ranks/cuda:*/LinearTest.NanStaysInItsRow/cuda'
few+=':*/GatedLinearTest.DtypesLayouts*/cuda:*/DequantizeTest.IntoF16*/cuda:*/CudaLinearTest.TraceTellsTheKernel/cuda'
few+=':*/CudaLinearTest.DecodesTheBitsOfTheCpu/cuda:*/CudaLinearTest.EncodingRefuses*/cuda:*/KvAppendTest.*/cuda'
few+=':*/ModelGolden.EveryLevelInOddSteps/cuda_neox_parallel:*/ModelGolden.EveryLevelInOddSteps/cuda_llama_int8_zero_points'
for tool in memcheck racecheck initcheck; do
  echo "== compute-sanitizer --tool $tool"
  for program in test_quant test_ops test_cuda test_model; do
    compute-sanitizer --tool $tool --report-api-errors no --error-exitcode 9 \
      "$bin/$program" --gtest_filter="$few" --gtest_brief=1 2>&1 | tail -4
    report "$program" "${PIPESTATUS[0]}"
  done
done
exit $failed
