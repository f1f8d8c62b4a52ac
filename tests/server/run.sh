#!/usr/bin/env bash
# Runs the tests of `tessera serve` from outside: clients, a browser, raw sockets.
#   tests/server/run.sh [PROGRAM] [pytest's options]      PROGRAM: build/bin/tessera, or that of a sanitizer build
# The Python packages go to build/server-venv. What the server logged and the screenshots of the page lie in
# build/server-tests afterwards.
#   --sockets-only     only what a client can do to the sockets: for builds with a sanitizer
#   --tiny             a model of a few thousand weights: for builds with a sanitizer
#   --malformed N      so many malformed requests (10000)
#   --droppers N       so many clients that leave (1000)
#   --long N           and one run of N requests, which watches the memory (20000 takes about two minutes)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/scripts/setup.sh"
program=build/bin/tessera
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then program=$1; shift; fi
program=$(realpath "$program")

venv=$root/build/server-venv
ensure_venv "$venv" "$root/tests/server/requirements.txt"
cd "$root/tests/server"
exec "$venv/bin/python" -m pytest -q -c pytest.ini --rootdir . -p no:cacheprovider --durations=5 "--program=$program" \
  "--artefacts=$root/build/server-tests/$(basename "$(dirname "$(dirname "$program")")")" . "$@"
