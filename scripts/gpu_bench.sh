#!/usr/bin/env bash
# Measures on a GPU what changes with decoding: the figures of decode.md, engine.md, profile.md and decode_attention_table.md in
# docs/results/h200. Run it on a machine with a GPU; the programs may have been built elsewhere and copied here.
#   scripts/gpu_bench.sh FOLDER OUT [PART...]      FOLDER: of bench_gpu, bench_generate, bench_engine and tessera (build/portable,
#                                                  of a build with -DTESSERA_PORTABLE=ON); OUT: a folder for all output
# Parts, in this order if none is named (with its limit in seconds; what has not begun by then is left out):
#   steps      120  time of a token: op by op, captured, all layers in one kernel; three shapes, f16 and nvfp4
#   busy        40  the same for Pythia-2.8B in nvfp4 while every core of the host is loaded
#   engine      60  steps of 1 to 128 equal streams
#   prompts     60  prompts of 512 and 2048 tokens beside the rate of a large product
#   decode     150  decode attention beside PyTorch's back ends; windows, sinks and rope_on_read beside plain calls
#   streams     60  endless streams with attention sinks: 4 million tokens, and 100,000 of Pythia-2.8B's shape
#   peers      120  beside transformers, replayed from a CUDA graph
#   profile     30  where a token's time goes, with and without the fused kernel
#   company     60  steps of 1, 8 and 32 equal streams with --batch-invariant beside steps without it: only if it is named
#   requests   150  64 requests beside transformers' continuous batching: only if it is named
# decode needs PyTorch; peers and requests need transformers too. TESSERA_COMMIT names the commit if there is no git. OUT/summary.md
# has the result; every file in OUT that ends in .jsonl is what a program printed, and .log what it complained about.
set -uo pipefail

repository=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -lt 2 ]; then
  sed -n '2,/^set /s/^# \?//p' "$0" >&2
  exit 2
fi
folder=$(cd "$1" 2>/dev/null && pwd) || { echo "gpu_bench.sh: the folder $1 does not exist" >&2; exit 2; }
mkdir -p "$2" && out=$(cd "$2" && pwd) || exit 2
shift 2
all=(steps busy engine prompts decode streams peers profile)
named=(company requests)
for part in "$@"; do
  if [[ " ${all[*]} ${named[*]} " != *" $part "* ]]; then
    echo "gpu_bench.sh: there is no part $part; there are: ${all[*]} ${named[*]}" >&2
    exit 2
  fi
done
for program in bench_gpu bench_generate bench_engine tessera; do
  if [ ! -x "$folder/$program" ]; then
    echo "gpu_bench.sh: $folder/$program does not exist: build it with cmake -DTESSERA_CUDA=ON -DTESSERA_PORTABLE=ON -DTESSERA_BENCH=ON" >&2
    exit 2
  fi
done
if ! command -v nvidia-smi >/dev/null; then
  echo "gpu_bench.sh: nvidia-smi was not found, so there is no NVIDIA driver: run this on a machine with a GPU" >&2
  exit 2
fi

# gpu_check.sh has a function that finds libraries which the loader does not find.
# shellcheck disable=SC1090
source <(sed -n '/^find_library() {/,/^}/p' "$repository/scripts/gpu_check.sh")
for library in $(ldd "$folder/bench_gpu" 2>/dev/null | sed -n 's/^\s*\(\S*\) => not found.*/\1/p'); do
  if ! place=$(find_library "$library"); then
    echo "gpu_bench.sh: $library was not found; add its folder to LD_LIBRARY_PATH" >&2
    exit 2
  fi
  export LD_LIBRARY_PATH=$place${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
TESSERA_COMMIT=${TESSERA_COMMIT:-$(cat "$folder/commit" 2>/dev/null || git -C "$repository" rev-parse --short HEAD 2>/dev/null || echo unknown)}
export TESSERA_COMMIT
{
  echo "$(date -u +%F), commit $TESSERA_COMMIT"
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,temperature.gpu --format=csv,noheader
  echo "$(nproc) cores of the host"
} | tee "$out/machine.txt"

shapes=$repository/bench/shapes
failed=0
load=()  # processes that keep the host busy
trap 'kill "${load[@]}" 2>/dev/null' EXIT

# run FILE COMMAND...: appends to OUT/FILE what the command prints, as long as the part has time left.
run() {
  local file=$1 left=$((deadline - SECONDS)) status
  shift
  if [ "$left" -le 0 ]; then
    echo "   no time left for: $*" | tee -a "$out/$part.log"
    failed=1
    return
  fi
  echo "\$ $*" >>"$out/$part.log"
  timeout -k 5 "$left" "$@" >>"$out/$file" 2>>"$out/$part.log"
  status=$?
  if [ "$status" -eq 124 ]; then echo "   stopped, its time is over: $*" | tee -a "$out/$part.log"; fi
  if [ "$status" -ne 0 ]; then
    failed=1
    echo "   ended with $status: $*"
    tail -3 "$out/$part.log"
  fi
}

# ---- the parts ----------------------------------------------------------------------------------

generate() {  # generate FILE SHAPE OPTION...
  local file=$1 shape=$2
  shift 2
  run "$file" "$folder/bench_generate" --device cuda --shape "$shapes/$shape.json" --dtype f16 --repeat 3 "$@"
}

part_steps() {
  local shape kind
  for shape in pythia-2.8b pythia-160m llama-8b; do
    for kind in "--no-graphs --no-fusion" "--no-fusion" ""; do
      # shellcheck disable=SC2086  # words of it are options
      generate steps.jsonl $shape --weights f16,nvfp4 --context 128,448 --generate 48 --prompt 128 --sample $kind
    done
  done
}

part_busy() {
  local i
  local options=(--weights nvfp4 --context 128 --generate 256 --prompt 128 --sample)
  generate busy_idle.jsonl pythia-2.8b "${options[@]}"
  for ((i = 0; i < $(nproc); i++)); do
    (while :; do :; done) &
    load+=($!)
  done
  generate busy_loaded.jsonl pythia-2.8b "${options[@]}"
  kill "${load[@]}"
  wait "${load[@]}" 2>/dev/null
  load=()
}

part_engine() {
  run engine.jsonl "$folder/bench_engine" --shape "$shapes/pythia-2.8b.json" --device cuda --weights f16 --streams 1,8,32,64,128 \
    --prompt 448 --generate 128 --max-step 2048 --repeat 2
}

part_prompts() {
  local shape tokens
  for shape in pythia-2.8b llama-8b; do
    for tokens in 512 2048; do
      generate prompts.jsonl "$shape" --weights f16,nvfp4 --generate 8 --prompt "$tokens" --step "$tokens"
    done
  done
}

part_decode() {
  # A cache of 4096 tokens that has dropped a page of them, beside 4096 in a row; and eight times as many.
  local one=("$folder/bench_gpu" decode --kv-heads 8 --groups 4 --dims 128 --batch 1,16,64 --page 0,64)
  run decode_variants.jsonl "${one[@]}" --context 4160 --window 4096
  run decode_variants.jsonl "${one[@]}" --context 32832 --window 32768
  run decode_variants.jsonl "${one[@]}" --context 4160 --window 4092 --sinks 4
  run decode_variants.jsonl "${one[@]}" --context 4096,32768 --rope-on-read
  run decode_variants.jsonl "${one[@]}" --context 4160 --window 4092 --sinks 4 --rope-on-read
  run decode.txt python3 "$repository/bench/peers/compare_decode.py" --program "$folder/bench_gpu" --out "$out/decode" --minutes 1.8
}

part_streams() {
  run streams.jsonl "$folder/bench_generate" --device cuda --model "$repository/models/stories" --weights dense --stream 4000000
  run streams.jsonl "$folder/bench_generate" --device cuda --shape "$shapes/pythia-2.8b.json" --dtype f16 --weights nvfp4 --stream 100000
}

part_peers() {
  run peers.txt python3 "$repository/bench/peers/compare_transformers.py" --shapes "$shapes/pythia-2.8b.json" "$shapes/llama-8b.json" \
    --kinds graph --batches 1 --contexts 128 --prompts 512 --weights f16,nvfp4 --sample --generate 128 --repeat 3 --minutes 1.7 \
    --generate-program "$folder/bench_generate" --engine-program "$folder/bench_engine" --out "$out/peers"
}

part_profile() {
  local fusion
  for fusion in on off; do
    run "profile_fusion_$fusion.txt" "$folder/tessera" profile --device cuda --model "$repository/models/stories" --dtype f16 --fusion "$fusion" \
      --repeat 3 --html "$out/profile_fusion_$fusion.html"
  done
}

part_company() {
  local kind
  for kind in "" --batch-invariant; do
    # shellcheck disable=SC2086  # no option is no word
    run company.jsonl "$folder/bench_engine" --shape "$shapes/pythia-2.8b.json" --device cuda --weights f16,nvfp4 --streams 1,8,32 \
      --prompt 448 --generate 128 --max-step 2048 --repeat 2 $kind
  done
}

part_requests() {
  local shape
  for shape in pythia-2.8b llama-8b; do
    run requests.txt python3 "$repository/bench/peers/compare_engine.py" --device cuda --program "$folder/bench_engine" --shape "$shapes/$shape.json"
  done
}

# ---- all of them --------------------------------------------------------------------------------

declare -A limit=([steps]=120 [busy]=40 [engine]=60 [prompts]=60 [decode]=150 [streams]=60 [peers]=120 [profile]=30 [company]=60 [requests]=150)
if [ $# -eq 0 ]; then set -- "${all[@]}"; fi
times=
for part in "$@"; do
  begin=$SECONDS deadline=$((SECONDS + limit[$part]))
  echo "== $part (at most ${limit[$part]} s)"
  # Files of an earlier run would be taken for those of this one.
  rm -rf "$out/$part".{jsonl,txt,log} "${out:?}/$part" "$out/$part"_*.{jsonl,txt,html}
  "part_$part"
  times+="$part $((SECONDS - begin)) s, "
  echo "   $((SECONDS - begin)) s"
done
echo "== summary (${times%, })"
{
  cat "$out/machine.txt"
  echo "${times%, }"
  python3 "$repository/scripts/gpu_bench_summary.py" "$out"
} >"$out/summary.md"
cat "$out/summary.md"
exit $failed
