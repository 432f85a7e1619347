#!/usr/bin/env bash
# Runs the tests of `roformer_cpp.patch` with the oldest and the newest transformers that pyproject.toml allows, and
# records the versions and the number of tests in tests/python/transformers_versions.json, which a test compares with it.
#
#   scripts/test_transformers.sh              both
#   scripts/test_transformers.sh 5.24.0       these versions, without a record
set -euo pipefail
cd "$(dirname "$0")/.."
python=${ROFORMER_PYTHON:-.venv/bin/python}
record=tests/python/transformers_versions.json
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

versions=("$@")
if [ $# -eq 0 ]; then
  mapfile -t versions < <("$python" -c "import json; print(*json.load(open('$record')), sep='\n')")
fi
results=()
for version in "${versions[@]}"; do
  "$python" -m pip install -q --no-deps --target "$work/$version" "transformers==$version"
  PYTHONPATH="$work/$version:python" "$python" -c "import transformers; assert transformers.__version__ == '$version'"
  PYTHONPATH="$work/$version:python" "$python" -m pytest -q tests/python/test_patch.py tests/python/test_patch_attention.py \
    tests/python/test_patch_fallbacks.py tests/oracles/test_patch_families.py | tee "$work/log"
  results+=("\"$version\": $(grep -oE '[0-9]+ passed' "$work/log" | grep -oE '[0-9]+')")
done
[ $# -gt 0 ] || printf '{%s}\n' "$(IFS=,; echo "${results[*]}" | sed 's/,/, /g')" >"$record"
