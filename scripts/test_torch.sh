#!/usr/bin/env bash
# Builds against another release of PyTorch and runs the tests of the modules that use it: C++ programs, then pytest,
# whose exit code and last line are the script's.
#
#   scripts/test_torch.sh VERSION [ARG...]    such as 2.15.0; pytest's arguments, default: tests/ops tests/nn
#                                             tests/python tests/train
#
# All files are in build/torch-VERSION, which may be deleted. A version of PyTorch with CUDA needs gigabytes.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:--}" in -*) sed -n '2,8p' scripts/test_torch.sh | sed 's/^# \{0,1\}//' >&2; exit 2 ;; esac
version=$1
shift
[ $# -gt 0 ] || set -- tests/ops tests/nn tests/python tests/train
folder=$PWD/build/torch-$version
python=$folder/venv/bin/python
say() { printf '[test_torch] %s\n' "$*" >&2; }

if [ ! -e "$folder/installed" ]; then
  say "installing torch $version"
  mkdir -p "$folder"
  python3 -m venv "$folder/venv"
  grep -v '^torch==' requirements.txt >"$folder/requirements.txt"
  "$python" -m pip install --quiet --disable-pip-version-check "torch==$version" -r "$folder/requirements.txt" \
    -r requirements-dev.txt
  touch "$folder/installed"
fi
export ROFORMER_PYTHON=$python ROFORMER_BUILD_DIR=$folder/build ROFORMER_LIB_DIR=$folder/build/lib
export PYTHONPATH=$PWD/python PATH=$folder/venv/bin:$PATH
say "building"
cmake --preset release -B "$folder/build" -DROFORMER_TESTS=ON >"$folder/configure.log" 2>&1 || { cat "$folder/configure.log" >&2; exit 1; }
# With the programs that tests/python calls.
cmake --build "$folder/build" \
  --target roformer rf_python rf_training rf_nn_test rf_train_test rf_text_probe rf_data_probe >&2
for program in nn_test train_test; do
  say "$program"
  "$folder/build/tests/$program" --gtest_brief=1
done
say "tests with torch $("$python" -c 'import torch; print(torch.__version__)') begin"
"$python" -m pytest -q -rs -p no:cacheprovider "$@"
