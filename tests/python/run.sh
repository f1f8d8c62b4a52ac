#!/usr/bin/env bash
# Builds the wheel of the Python package against the library of a build folder, and tests the installed package.
#   tests/python/run.sh [BUILD] [pytest's options]      BUILD: build, where everything is built
#   tests/python/run.sh [BUILD] --ray                   replicas on Ray alone: it takes a few minutes and a gigabyte
# The library is not compiled again: the wheel links an installed copy of BUILD. The virtual environment is
# BUILD/python-venv; packages come from PyPI, once.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/scripts/setup.sh"
build=$root/build
if [ $# -gt 0 ] && [ -e "$1/CMakeCache.txt" ]; then build=$(realpath "$1"); shift; fi
if [ ! -e "$build/CMakeCache.txt" ]; then
  echo "run.sh: $build is not built; run cmake there first, as ./test.sh does" >&2
  exit 2
fi

venv=$build/python-venv
ensure_venv "$venv" "$root/tests/python/requirements.txt"

if [ "${1:-}" = --ray ]; then
  shift
  "$venv/bin/pip" install --quiet --disable-pip-version-check "ray[serve]"
  export TESSERA_TEST_RAY=1
  set -- ray_test.py ray_autoscale_test.py "$@"
fi

rm -rf "$build/python-prefix" "$build/python-wheel"
cmake --install "$build" --prefix "$build/python-prefix" >/dev/null
PATH=$venv/bin:$PATH "$venv/bin/pip" wheel "$root" --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  -C build-dir="$build/python-build" -C cmake.define.TESSERA_INSTALLED="$build/python-prefix" -w "$build/python-wheel"
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall \
  "$build"/python-wheel/tessera-*.whl

"$venv/bin/ruff" check --quiet --config "$root/pyproject.toml" "$root/python" "$root/tests/python" "$root/examples/python"
# PyTorch multiplies bf16 by AMX where the processor lists it. Some virtual machines list it and end the program instead.
export ONEDNN_MAX_CPU_ISA=${ONEDNN_MAX_CPU_ISA:-AVX512_CORE}
cd "$root/tests/python"
TESSERA_WHEEL=$(echo "$build"/python-wheel/tessera-*.whl) TESSERA_ARTEFACTS=$build/python-tests \
  exec "$venv/bin/python" -m pytest -p no:cacheprovider --durations=8 "$@"
