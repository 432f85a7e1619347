#!/usr/bin/env bash
# Fuzzes the readers of foreign files under the address and undefined-behaviour sanitizers. Exit code 0: nothing found.
#
#   scripts/fuzz.sh [SECONDS] [TARGET...]    SECONDS for each target (60); targets: the folders of fuzz/corpus
#
# Needs libFuzzer's archive: Debian's libclang-rt-14-dev or a newer one, or its path in LIBFUZZER. Findings are written
# to build/fuzz/found/TARGET, and inputs that reach new code to build/fuzz/corpus/TARGET, where the next run begins.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
[ $# -gt 0 ] || set -- $(ls fuzz/corpus)

archive=${LIBFUZZER:-$(ls -v /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-x86_64.a 2>/dev/null | tail -1)}
[ -n "$archive" ] || { echo "[fuzz] libFuzzer must be installed (Debian: libclang-rt-14-dev), got none" >&2; exit 1; }

# Only the instruction set of this machine; the kernels are tested elsewhere.
CXXFLAGS="-O1 -g1 -march=native -DHWY_COMPILE_ONLY_STATIC" \
  cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
  -DROFORMER_WARNINGS_AS_ERRORS=OFF -DROFORMER_SANITIZE=address,undefined -DROFORMER_TORCH=OFF \
  -DROFORMER_LIBFUZZER="$archive" >/dev/null
cmake --build build/fuzz --target rf_libfuzzer >&2

status=0
for target; do
  mkdir -p "build/fuzz/corpus/$target" "build/fuzz/found/$target"
  log=build/fuzz/found/$target.log
  # One thread: inputs are small. Leaks are looked for at the end of the process.
  RF_FUZZ_TARGET=$target OMP_NUM_THREADS=1 build/fuzz/fuzz_targets -max_total_time="$seconds" -timeout=20 \
    -rss_limit_mb=3000 -max_len=20000 -print_final_stats=1 -artifact_prefix="build/fuzz/found/$target/" \
    "build/fuzz/corpus/$target" "fuzz/corpus/$target" >"$log" 2>&1 || status=1
  executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  edges=$(grep -o 'ft: [0-9]*' "$log" | tail -1)
  echo "$target: ${executed:-0} runs, ${edges:-ft: 0}, $(ls "build/fuzz/found/$target" | wc -l) inputs that failed ($log)"
done
exit $status
