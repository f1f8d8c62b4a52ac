#!/usr/bin/env bash
# Runs every fuzz target, one after the other, and fails on the first crash, hang, leak or flood of memory.
#   tests/fuzz/run.sh [SECONDS [SEED]]     seconds in all, 60 unless given; the same seed (1 unless given) on a fresh build
#                                          tries the same inputs in the same order, 0 asks for new ones each time
# Needs the build: cmake --preset fuzz && cmake --build build-fuzz
# Each starts from files of tests/data and from what earlier runs found (build-fuzz/corpus). An input that fails is kept as
# build-fuzz/failed-TARGET-*; run build-fuzz/bin/fuzz_TARGET on it to see it fail again.
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=${1:-60} seed=${2:-1}
for number in "$seconds" "$seed"; do
  case "$number" in
    *[!0-9]* | "") echo "run.sh: '$number' is no number; run.sh [SECONDS [SEED]]" >&2; exit 2 ;;
  esac
done

# seeds TARGET FOLDER: fills the folder with files to start from.
seeds() {
  case "$1" in
    safetensors)
      cp tests/data/bad/safetensors/* "$2"
      # As a header with the right length around it: the last byte says how much data follows.
      printf '{"x":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}}\x04' >"$2/header"
      printf '{"__metadata__":{"format":"pt"},"x":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}\x04' >"$2/scalar"
      ;;
    config)
      cp tests/data/bad/config/* "$2"
      local config
      for config in tests/data/goldens/*/config.json; do
        cp "$config" "$2/$(basename "$(dirname "$config")").json"
      done
      ;;
    request)  # the first byte chooses the endpoint
      printf '0{"prompt":"Once","max_tokens":4,"temperature":0.5,"stop":["a"],"logit_bias":{"5":-1},"n":2}' >"$2/completion"
      printf '0{"prompt":[[1,2],[3]],"stream":true,"stream_options":{"include_usage":true},"logprobs":2}' >"$2/ids"
      printf '1{"messages":[{"role":"user","content":[{"type":"text","text":"<|im_end|>"}]}],"top_logprobs":1}' >"$2/chat"
      printf '2{"content":"a","parse_special":false}' >"$2/tokenize"
      printf '3{"tokens":[1,2,3]}' >"$2/detokenize"
      ;;
    head)  # what a connection sends; the first byte says in pieces of how many bytes it comes
      local body='{"prompt":"Once"}' post='POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n'
      printf '\005GET /health HTTP/1.1\r\nHost: a\r\n\r\nGET /v1/models/a%%2Fb?c HTTP/1.0\r\n\r\n' >"$2/get"
      printf "\\007${post}Authorization: Bearer secret\\r\\nContent-Length: 17\\r\\n\\r\\n%s" "$body" >"$2/length"
      printf "\\003${post}Authorization: Bearer secret\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n8;a=b\\r\\n%s\\r\\n9\\r\\n%s\\r\\n0\\r\\n\\r\\n" \
        "${body:0:8}" "${body:8}" >"$2/chunks"
      printf '\001OPTIONS /tokenize HTTP/1.1\r\nAccess-Control-Request-Headers: authorization,x-a\r\nExpect: 100-continue\r\n\r\n' >"$2/options"
      ;;
    tokenizer)
      cp tests/data/bad/tokenizer/* tests/data/tokenizers/*.tokenizer.json "$2"
      # Files with a text behind them: a pattern that looks far ahead, tokens of white space, and those of a chat.
      local model='"model":{"type":"BPE","vocab":{"a":0,"b":1,"<":2,">":3,"<s>":4},"merges":[]}'
      printf '{%s,"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a*b|a"},"behavior":"Isolated"}}\0aaaaaaaa' \
        "$model" >"$2/far_ahead"
      printf '{%s,"added_tokens":[{"id":9,"content":"\\t","rstrip":true},{"id":8,"content":" ","lstrip":true}]}\0\t \t ' \
        "$model" >"$2/white_space"
      printf '{%s,"added_tokens":[{"id":9,"content":"<|im_end|>","special":true}]}\0a<|im_end|>b' "$model" >"$2/chat"
      ;;
    chat)
      # A template, a zero byte, and messages.
      python3 -B tests/fuzz/chat_seeds.py "$2"
      ;;
  esac
}

targets=(build-fuzz/bin/fuzz_*)
[ -x "${targets[0]}" ] || { echo "run.sh: there is no build-fuzz/bin/fuzz_*: cmake --preset fuzz, then build" >&2; exit 2; }
for program in "${targets[@]}"; do
  target=${program##*/fuzz_}
  start=build-fuzz/seeds/$target found=build-fuzz/corpus/$target log=build-fuzz/$target.log
  rm -rf "$start"
  mkdir -p "$start" "$found"
  seeds "$target" "$start"
  # A single allocation over 512 MB or 2 GB in all are failures: inputs have at most 16 kB, and the tokenizer makes a text
  # of 128 kB of some. The targets bound the time of the processor themselves; what takes a minute on the clock hangs.
  if ! "$program" -seed="$seed" -max_total_time=$((seconds / ${#targets[@]})) -max_len=16384 -timeout=60 -rss_limit_mb=2048 \
    -malloc_limit_mb=512 -dict=tests/fuzz/words.dict -artifact_prefix="build-fuzz/failed-$target-" -print_final_stats=1 \
    -verbosity=1 "$found" "$start" >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "run.sh: fuzz_$target failed; the whole log is $log" >&2
    exit 1
  fi
  echo "fuzz_$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, none failed"
done
