#!/usr/bin/env bash
# Sanitizers that scripts/test.sh does not run, because they need separate long builds. Exit code 0: nothing found.
#
#   scripts/sanitize.sh threads [ARG...]   ThreadSanitizer over core and engine: the tests of core (ARG: arguments of
#                                          core_test) and of the engine's schedule
#   scripts/sanitize.sh ops [ARG...]       AddressSanitizer over the PyTorch operators (ARG: arguments of pytest)
#   scripts/sanitize.sh server [ARG...]    address and undefined-behavior sanitizers over `roformer serve` (the same)
#
# docs/sanitizers.md describes what they detect and the result of a run.
set -euo pipefail
cd "$(dirname "$0")/.."
check=${1:-}
shift || true

# Only the instruction set of this machine; scripts/test.sh tests the others.
export CXXFLAGS="-O1 -g1 -march=native -DHWY_COMPILE_ONLY_STATIC"

build() {  # directory, target, options of CMake
  local directory=$1 target=$2
  shift 2
  cmake -S . -B "$directory" -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
    -DROFORMER_WARNINGS_AS_ERRORS=OFF "$@" >/dev/null
  cmake --build "$directory" --target "$target" >&2
}

case $check in
  threads)
    build build/sanitize-threads rf_core_test -DROFORMER_SANITIZE=thread -DROFORMER_TORCH=OFF
    cmake --build build/sanitize-threads --target rf_engine_test >&2
    export TSAN_OPTIONS="exitcode=66 ${TSAN_OPTIONS:-}"
    build/sanitize-threads/tests/engine_test --gtest_brief=1 --gtest_filter='Schedule.*:RequestQueue.*'
    exec build/sanitize-threads/tests/core_test --gtest_brief=1 "$@"
    ;;
  ops)
    # PyTorch and Python are not built for the sanitizer, so it is loaded before them. It replaces their malloc, which
    # puts a red zone around the memory of every tensor. Memory that they keep until the end does not count as a leak.
    # libroformer_nn.so, which the tests of attention need, comes from build/release.
    python=${ROFORMER_PYTHON:-$PWD/.venv/bin/python}
    [ -e build/release/lib/libroformer_nn.so ] || { echo "[sanitize] run scripts/setup.sh --tests first" >&2; exit 1; }
    build build/sanitize-ops rf_ops \
      -DROFORMER_SANITIZE=address -DROFORMER_TESTS=OFF -DROFORMER_PYTHON="$python"
    ln -sf "$PWD/build/release/lib/libroformer_nn.so" build/sanitize-ops/lib/
    [ $# -gt 0 ] || set -- tests/ops
    export ROFORMER_LIB_DIR=$PWD/build/sanitize-ops/lib ASAN_OPTIONS="detect_leaks=0 ${ASAN_OPTIONS:-}"
    # The test that is left out needs a second instruction set, AVX2 by its name.
    # --capture=sys: a report is written to the descriptor of stderr, and pytest must not keep it.
    LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)" \
      exec "$python" -m pytest -q -p no:cacheprovider --capture=sys \
      --deselect tests/ops/test_attention_fused.py::test_every_nan_stays_nan "$@"
    ;;
  server)
    # The sanitizer calls dlopen() for the program, whose RUNPATH does not count then; its RPATH does.
    build build/sanitize-server roformer -DROFORMER_SANITIZE=address,undefined -DROFORMER_TORCH=OFF \
      -DROFORMER_TESTS=OFF -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags
    [ $# -gt 0 ] || set -- tests/server
    ROFORMER_BUILD_DIR=$PWD/build/sanitize-server exec "${ROFORMER_PYTHON:-.venv/bin/python}" -m pytest -q \
      -p no:cacheprovider "$@"
    ;;
  *)
    sed -n '2,9p' "$0" | sed 's/^# \{0,1\}//' >&2
    exit 2
    ;;
esac
