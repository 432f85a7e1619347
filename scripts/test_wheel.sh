#!/usr/bin/env bash
# Runs the Python tests against an installed wheel: with the operators for the torch of the environment, in a copy of
# the repository that has neither the package nor its libraries. Exit code and last line are pytest's. Tests of the
# repository itself are left out: its build, its scripts, and its pages except the tutorials.
#
#   scripts/test_wheel.sh                     builds the wheel first, in a separate environment
#   scripts/test_wheel.sh FILE.whl [ARG...]   tests a wheel that is there; pytest's arguments, default: those tests
#
#   ROFORMER_PYTHON=/path/to/python    what has torch and the packages of requirements-dev.txt; default: .venv/bin/python
#
# Some tests call programs that are not in a wheel; they come from build/release (scripts/setup.sh --tests).
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in -*) sed -n '2,12p' scripts/test_wheel.sh | sed 's/^# \{0,1\}//' >&2; exit 2 ;; esac

root=$PWD
base=${ROFORMER_PYTHON:-$root/.venv/bin/python}
[ -x build/release/tests/text_probe ] || { echo "[test_wheel] build/release must have the tests' programs, got none. Hint: scripts/setup.sh --tests" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { printf '[test_wheel] %s\n' "$*" >&2; }

"$base" -m venv "$work/venv"
python=$work/venv/bin/python
# The packages of the environment are visible, and nothing is installed in it. So torch is not in the folder of the
# package, as with packages of the system.
purelib() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
purelib "$base" >"$(purelib "$python")/base.pth"

wheel=${1:-}
[ $# = 0 ] || shift
if [ -z "$wheel" ]; then
  "$python" -m pip install --quiet --disable-pip-version-check 'scikit-build-core>=0.10' 'nanobind>=2'
  "$python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$work" .
  wheel=$(echo "$work"/*.whl)
fi
say "$(basename "$wheel"), $(stat -c %s "$wheel") bytes"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"

copy=$work/copy
mkdir -p "$copy/build/release"
git ls-files -z | grep -zv '^python/' | xargs -0 cp --parents -t "$copy"
package=$(cd "$work" && "$python" -c 'import pathlib, roformer_cpp; print(pathlib.Path(roformer_cpp.__file__).parent)')
# The script of the environment, as on a user's PATH: it finds torch where Python does.
ln -s "$work/venv/bin/roformer" "$package/lib" "$copy/build/release"
ln -s "$root/build/release/tests" "$copy/build/release"
cd "$copy"
say "tests of $("$python" -c 'import roformer_cpp; print(roformer_cpp.__file__)') begin"
if [ $# = 0 ]; then
  for folder in tests/*/; do
    case $folder in tests/build/ | tests/docs/ | tests/scripts/) ;; *) set -- "$@" "$folder" ;; esac
  done
  set -- "$@" tests/docs/test_tutorials.py
fi
PATH=$work/venv/bin:$PATH ROFORMER_PYTHON=$python "$python" -m pytest -q -rs -p no:cacheprovider "$@"
