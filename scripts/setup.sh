#!/usr/bin/env bash
# Installs the packages that the build needs and that are missing, on Debian 12, Ubuntu 24.04 and similar systems. Prints what it
# does; does nothing if nothing is missing. Source it for the functions, or run it.
set -euo pipefail

# name of the package  : how to see that it is there
build_packages() {
  cat <<'LIST'
g++               command:g++
cmake             command:cmake
ninja-build       command:ninja
pkg-config        command:pkg-config
libhwy-dev        header:hwy/highway.h
libfmt-dev        header:fmt/format.h
libcli11-dev      header:CLI/CLI.hpp
nlohmann-json3-dev header:nlohmann/json.hpp
libpcre2-dev      header:pcre2.h
libutf8proc-dev   header:utf8proc.h
libboost-dev      header:boost/beast.hpp
LIST
}
test_packages() {
  cat <<'LIST'
libgtest-dev      header:gtest/gtest.h
libbenchmark-dev  header:benchmark/benchmark.h
libopenblas-dev   package:libopenblas-dev
clang-format      command:clang-format
clang-tidy        command:clang-tidy
clang             command:clang++
libclang-rt-dev   package:libclang-rt-dev
python3           command:python3
python3-jinja2    package:python3-jinja2
python3-venv      venv:
python3-dev       python_header:
LIST
}
# For the tests of pages. Ubuntu has it only as a snap; the tests skip without it.
browser_packages() {
  cat <<'LIST'
chromium          command:chromium
chromium-driver   command:chromedriver
LIST
}
# For several processes (--parallel). Without them everything else works, and their tests are not built.
parallel_packages() {
  cat <<'LIST'
libopenmpi-dev    command:mpicxx
openmpi-bin       command:mpirun
LIST
}
# For `make docs`.
docs_packages() {
  cat <<'LIST'
doxygen           command:doxygen
LIST
}

is_present() {
  case "$1" in
    command:*) command -v "${1#command:}" >/dev/null ;;
    header:*) [ -e "/usr/include/${1#header:}" ] || [ -e "/usr/local/include/${1#header:}" ] ;;
    venv:) python3 -c 'import ensurepip, venv' 2>/dev/null ;;  # of the python3 on PATH, whosever it is
    python_header:) python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ;;
    package:*) dpkg-query -W -f='${Status}' "${1#package:}" 2>/dev/null | grep -q 'install ok installed' ;;
  esac
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# ensure_packages LIST...: installs the packages of the named lists that are missing.
ensure_packages() {
  local missing=() package probe list
  for list in "$@"; do
    while read -r package probe; do
      is_present "$probe" || missing+=("$package")
    done < <("$list")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if ! command -v apt-get >/dev/null; then
    echo "Missing: ${missing[*]}. This is not Debian or Ubuntu: please install them by hand, then run this again." >&2
    return 1
  fi
  echo "Installing with apt-get: ${missing[*]}"
  as_root apt-get update -qq
  DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# ensure_venv FOLDER REQUIREMENTS: a virtual environment with these packages of PyPI, made once and again when they change.
ensure_venv() {
  # pip would compile all of torch and transformers, for 50 s of processor time. Python compiles what is imported, and keeps it.
  unset PYTHONDONTWRITEBYTECODE
  cmp -s "$2" "$1/installed.txt" && return 0
  rm -rf "$1"
  python3 -m venv "$1"
  "$1/bin/pip" install --quiet --disable-pip-version-check --no-compile -r "$2"
  cp "$2" "$1/installed.txt"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  ensure_packages build_packages test_packages docs_packages
  ensure_packages parallel_packages || echo "There is no MPI: --parallel is not built."
  echo "All packages that Tessera needs are installed."
fi
