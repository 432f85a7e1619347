#!/usr/bin/env bash
# Builds the packages of the program into build/package: roformer_<version>_<architecture>.deb and a .tar.gz. Needs the
# Debian packages of scripts/setup.sh, and dpkg-dev and file for the .deb; neither Python nor PyTorch.
#
#   scripts/package.sh
#
# The dictionary of tokenizers that segment Chinese comes from build/release, where scripts/setup.sh puts it, or from
# jieba of python3.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 0 ] || { sed -n '2,8p' "$0" | sed 's/^# \{0,1\}//' >&2; exit 2; }
say() { printf '[package] %s\n' "$*" >&2; }

build=build/package dictionary=share/roformer/dict.txt
launcher=()
command -v ccache >/dev/null && launcher=("-DCMAKE_CXX_COMPILER_LAUNCHER=env;CCACHE_BASEDIR=$PWD;CCACHE_NOHASHDIR=1;ccache")
cmake -S . -B "$build" -G Ninja -DCMAKE_INSTALL_PREFIX=/usr -DROFORMER_TORCH=OFF -DROFORMER_PARQUET=OFF \
  -DROFORMER_TESTS=OFF -DROFORMER_PYTHON_MODULE=OFF "${launcher[@]}" >&2
cmake --build "$build" ${JOBS:+-j "$JOBS"} >&2
source=build/release/$dictionary
find_jieba='import importlib.util as u; print(u.find_spec("jieba").submodule_search_locations[0])'
[ -e "$source" ] || source=$(python3 -c "$find_jieba" 2>/dev/null || true)/dict.txt
if [ -e "$source" ]; then
  install -D -m 644 "$source" "$build/$dictionary"
else
  say "no dictionary in build/release, and no Python package jieba: tokenizers that segment Chinese need --dict"
fi
cd "$build"
rm -f roformer*.deb roformer*.tar.gz
cpack -G DEB >&2
cpack -G TGZ -D CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY=ON >&2
printf '%s\n' "$PWD"/roformer*.deb "$PWD"/roformer*.tar.gz
