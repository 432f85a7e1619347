#!/usr/bin/env bash
# Builds and runs every test: C++ and Python, the modules without torch again under sanitizers, and the format checks.
# The last line of output is the total. Exit code 0 when nothing failed.
#
#   scripts/test.sh              everything
#   scripts/test.sh --quick      without the sanitizer build
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in "" | --quick) ;; *) sed -n '2,6p' scripts/test.sh | sed 's/^# \{0,1\}//' >&2; exit 2 ;; esac

scripts/setup.sh --tests
python=${ROFORMER_PYTHON:-$PWD/.venv/bin/python}

if [ "${1:-}" = --quick ]; then
  cmake --build --preset release --target rf_sanitized_tests >&2
else
  echo "[test] building the modules without torch under sanitizers" >&2
  cmake --preset sanitize >/dev/null
  cmake --build --preset sanitize >&2
fi
exec "$python" scripts/run_tests.py ${1:+"$1"}
