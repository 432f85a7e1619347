#!/usr/bin/env bash
# Makes this checkout ready to use: Debian packages, a Python environment in .venv, a build in build/release.
# Every step first checks whether its work is done, so a second run takes seconds.
#
#   scripts/setup.sh            what the program needs
#   scripts/setup.sh --tests    also what the tests and benchmarks need, and their binaries
#
#   ROFORMER_PYTHON=/path/to/python    uses an environment that has torch 2.11 to 2.15 (and, with --tests, what
#                                      requirements-dev.txt lists) instead of making .venv; nothing is installed in it
set -euo pipefail
cd "$(dirname "$0")/.."

tests=0 installed=0 build=build/release beside_pip=
case "${1:-}" in
  "") ;;
  --tests) tests=1 ;;
  *) sed -n '2,9p' scripts/setup.sh | sed 's/^# \{0,1\}//' >&2; exit 2 ;;
esac
say() { printf '[setup] %s\n' "$*" >&2; }

# --- Debian packages --------------------------------------------------------------------------------------------------
packages=(g++ cmake ninja-build ccache libhwy-dev libfmt-dev libcli11-dev nlohmann-json3-dev libxxhash-dev zlib1g-dev
  libzstd-dev libboost1.81-dev libssl-dev unzip)
[ -n "${ROFORMER_PYTHON:-}" ] || packages+=(python3-dev python3-venv)
[ "$tests" = 0 ] || packages+=(libgtest-dev pkgconf python3-dev chromium chromium-driver dpkg-dev file)

install_packages() {
  command -v dpkg-query >/dev/null || {
    say "not a Debian system; needed: a C++20 compiler, CMake 3.25, Ninja, ccache, Highway, fmt, CLI11,"
    say "nlohmann-json, xxHash, zlib, zstd, Boost 1.81, OpenSSL, unzip, Python 3.10 with venv and headers$([ "$tests" = 0 ] || printf ', GoogleTest'); going on with what is there"
    return
  }
  local missing=() package
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
      as_root=(sudo)
    else
      say "Debian packages are missing and this user may not install them. As root:"
      say "  apt-get update && apt-get install -y ${missing[*]}"
      exit 1
    fi
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
install_packages

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt" 2>/dev/null || true; }
with_tests=$(cached ROFORMER_TESTS)
[ "$tests" = 0 ] || with_tests=ON

# pip uses one core, so a build runs meanwhile. The build at the end reports what fails in this one. The job is a
# process group, which ends with this script.
build_beside_pip() {
  set -m
  { ROFORMER_PYTHON=$python cmake --preset release -DROFORMER_TESTS="${with_tests:-OFF}" -DROFORMER_TORCH=OFF \
    -DROFORMER_PYTHON_MODULE=OFF && exec setpriv --pdeathsig TERM ninja -C "$build" rf_core rf_engine rf_text; } \
    </dev/null >/dev/null 2>&1 &
  set +m
  beside_pip=$!
  trap 'kill -- "-$beside_pip" 2>/dev/null || true; wait "$beside_pip" || true' EXIT
}

# --- Python -----------------------------------------------------------------------------------------------------------
if [ -n "${ROFORMER_PYTHON:-}" ]; then
  python=$ROFORMER_PYTHON
  command -v "$python" >/dev/null || { say "ROFORMER_PYTHON=$python: no such program"; exit 1; }
  python=$(realpath -s "$(command -v "$python")")
else
  python=$PWD/.venv/bin/python
  # An environment without pip was not completed.
  "$python" -m pip --version >/dev/null 2>&1 || { say "making .venv"; python3 -m venv .venv; }
  files=(requirements.txt)
  [ "$tests" = 0 ] || files+=(requirements-dev.txt requirements-site.txt)
  for file in "${files[@]}"; do
    stamp=.venv/.installed-$file
    if ! cmp -s "$file" "$stamp"; then
      installed=1
      [ -n "$beside_pip" ] || [ -e "$build/build.ninja" ] || build_beside_pip
      say "installing $file into .venv"
      "$python" -m pip install --quiet --disable-pip-version-check -r "$file"
      cp "$file" "$stamp"
    fi
  done
  if [ -n "$beside_pip" ]; then
    say "building $build as far as it needs no torch"
    wait "$beside_pip" || true
    trap - EXIT
  fi
  # `import roformer_cpp` in the environment means the package of this checkout, and `roformer` its program.
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "$PWD/python" >"$site/roformer_cpp.pth"
  # So that `pip show` knows it, and `pip uninstall` takes it away.
  version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
  facts=$site/roformer_cpp-$version.dist-info
  mkdir -p "$facts"
  printf 'Metadata-Version: 2.1\nName: roformer-cpp\nVersion: %s\nSummary: The package of a checkout\n' "$version" >"$facts/METADATA"
  printf '{"url": "file://%s", "dir_info": {"editable": true}}' "$PWD" >"$facts/direct_url.json"
  echo scripts/setup.sh >"$facts/INSTALLER"
  for file in METADATA direct_url.json INSTALLER RECORD; do echo "${facts##*/}/$file,,"; done >"$facts/RECORD"
  echo roformer_cpp.pth,, >>"$facts/RECORD"
  ln -sf "$PWD/build/release/roformer" .venv/bin/roformer
fi

# --- Triton -----------------------------------------------------------------------------------------------------------
# A second version for the tests, next to the version in requirements-dev.txt.
file=requirements-triton.txt stamp=build/triton-3.6/.installed-$file
if [ "$tests" = 1 ] && ! cmp -s "$file" "$stamp"; then
  say "installing $file into build/triton-3.6"
  rm -rf build/triton-3.6
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --target build/triton-3.6 -r "$file"
  cp "$file" "$stamp"
fi

# --- build ------------------------------------------------------------------------------------------------------------
# Configured again only for another Python or its packages, or for the tests; Ninja notices changes of the build files.
export ROFORMER_PYTHON=$python
if [ ! -e "$build/build.ninja" ] || [ "$(cached ROFORMER_PYTHON)" != "$python" ] ||
  [ "$(cached ROFORMER_TESTS)" != "$with_tests" ] || [ "$(cached ROFORMER_TORCH)" != ON ] || [ "$installed" = 1 ]; then
  say "configuring $build"
  log=$(mktemp)
  cmake --preset release -DROFORMER_TESTS="${with_tests:-OFF}" >"$log" 2>&1 || { cat "$log" >&2; rm -f "$log"; exit 1; }
  rm -f "$log"
fi
say "building $build"
if [ "$tests" = 0 ]; then
  cmake --build --preset release --target roformer >&2
else
  cmake --build --preset release >&2
fi

# --- dictionary -------------------------------------------------------------------------------------------------------
# Next to the program, which looks there for the dictionary of the tokenizers that segment Chinese.
dictionary=$build/share/roformer/dict.txt
if [ ! -e "$dictionary" ]; then
  # The package is not imported, because that writes to the terminal.
  package=$("$python" -c 'import importlib.util as u; s = u.find_spec("jieba"); print(s.submodule_search_locations[0] if s else "")')
  if [ -n "$package" ]; then
    mkdir -p "${dictionary%/*}"
    cp "$package/dict.txt" "$dictionary.part"
    mv "$dictionary.part" "$dictionary"
  else
    say "$python has no package jieba (0.42.1), so $dictionary is missing: tokenizers that segment Chinese need --dict"
  fi
fi
say "ready: $build/roformer"
