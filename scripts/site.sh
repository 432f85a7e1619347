#!/usr/bin/env bash
# Builds the documentation site. Warnings, dead links, and resources from other sites are errors.
#
#   scripts/site.sh [OUTPUT]                 into build/site unless OUTPUT is given
#   scripts/site.sh --serve                  shows it at http://127.0.0.1:8000 and builds again after each change
#
#   ROFORMER_SITE_PYTHON=/path/to/python     uses an environment that has what requirements-site.txt lists, instead of
#                                            making .venv-site; nothing is installed in it
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/.."
usage() { sed -n '2,8p' scripts/site.sh | sed 's/^# \{0,1\}//' >&2; }
output=build/site serve=0
case "${1:-}" in
  "") ;;
  --serve) serve=1 ;;
  -*) usage; exit 2 ;;
  /*) output=$1 ;;
  *) output=$from/$1 ;;
esac
[ $# -le 1 ] || { usage; exit 2; }

if [ -n "${ROFORMER_SITE_PYTHON:-}" ]; then
  python=$ROFORMER_SITE_PYTHON
else
  python=$PWD/.venv-site/bin/python
  "$python" -m pip --version >/dev/null 2>&1 || { echo "[site] making .venv-site" >&2; python3 -m venv .venv-site; }
  if ! cmp -s requirements-site.txt .venv-site/.installed; then
    echo "[site] installing requirements-site.txt into .venv-site" >&2
    "$python" -m pip install --quiet --disable-pip-version-check -r requirements-site.txt
    cp requirements-site.txt .venv-site/.installed
  fi
fi

export NO_MKDOCS_2_WARNING=1
if [ "$serve" = 1 ]; then exec "$python" -m mkdocs serve --strict; fi
"$python" -m mkdocs build --strict --clean --site-dir "$output"
"$python" scripts/check_site.py "$output"
