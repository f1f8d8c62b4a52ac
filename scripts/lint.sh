#!/usr/bin/env bash
# Checks the format of every source file, and runs clang-tidy's short list on the sources that need no CUDA.
set -euo pipefail
cd "$(dirname "$0")/.."

# Formatting differs between releases of clang-format. The project uses version 14, that of Debian 12.
formatter=$(command -v clang-format-14 || command -v clang-format)
if "$formatter" --version | grep -q 'version 14\.'; then
  git ls-files '*.h' '*.cc' '*.cu' '*.cuh' | xargs -n 64 -P "$(nproc)" "$formatter" --dry-run -Werror
  echo "clang-format: all files are formatted"
else
  echo "clang-format: skipped, this is not version 14 ($("$formatter" --version))"
fi

# Files that Highway compiles once per target (src/cpu) are left out: each takes a minute, and its warnings are
# Highway's.
# So are the server's coroutines, which clang 14 does not compile with the library of GCC.
coroutines=()
for name in answer_queue client_watch connection generate generation_answer server; do
  coroutines+=(":!src/server/$name.cc")
done
mapfile -t files < <(git ls-files 'src/core/*.cc' 'src/ops/*.cc' 'src/quant/*.cc' 'src/modules/*.cc' 'src/cache/*.cc' \
  'src/model/*.cc' 'src/engine/*.cc' 'src/profile/*.cc' 'src/server/*.cc' 'apps/*.cc' "${coroutines[@]}")
scripts/tidy.py build "${files[@]}"
echo "clang-tidy: ${#files[@]} files are clean"
