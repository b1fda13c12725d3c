#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs them: tools/fuzz.sh [SECONDS] [TARGET...]
# SECONDS is the time for each target (default 60). Without targets, all of them run, one after another. The build folder
# is build/fuzz, or SMOE_FUZZ_BUILD; corpora grow in its folder corpus/, findings are kept in findings/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-60}
shift || true
if ! [[ $seconds =~ ^[0-9]+$ ]]; then
  echo "usage: tools/fuzz.sh [SECONDS] [TARGET...]; found \"$seconds\" instead of a number of seconds" >&2
  exit 2
fi
targets=("$@")
if ((${#targets[@]} == 0)); then
  for folder in fuzz/seeds/*/; do targets+=("$(basename "$folder")"); done
fi
if ! command -v clang++ > /dev/null; then
  echo "tools/fuzz.sh needs clang with libFuzzer: apt-get install clang" >&2
  exit 1
fi
build=${SMOE_FUZZ_BUILD:-build/fuzz}
cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1" -DSMOE_BUILD_FUZZERS=ON -DSMOE_SANITIZE=ON -DSMOE_BUILD_TESTS=OFF
ninja -C "$build" "${targets[@]/#/fuzz_}"

# LibTorch keeps memory on purpose; a leak of ours shows in the tests that ASan runs.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0:allocator_may_return_null=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
export OMP_NUM_THREADS=1
mkdir -p "$build/findings"
failed=()
for target in "${targets[@]}"; do
  corpus=$build/corpus/$target
  mkdir -p "$corpus"
  log=$build/$target.log
  echo "== $target: $seconds s"
  dictionary=()
  if [ -f "fuzz/dictionaries/$target.dict" ]; then dictionary=("-dict=fuzz/dictionaries/$target.dict"); fi
  if ! "$build/bin/fuzz_$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -max_len=8192 \
    -print_final_stats=1 -artifact_prefix="$build/findings/$target-" "${dictionary[@]}" \
    "$corpus" "fuzz/seeds/$target" > "$log" 2>&1; then
    failed+=("$target")
    grep -E "ERROR|SUMMARY|fuzz target|runtime error|Test unit written" "$log" || true
  fi
  grep -E "stat::number_of_executed_units|DONE" "$log" || tail -5 "$log"
done
if ((${#failed[@]} > 0)); then
  echo "findings in: ${failed[*]} (inputs in $build/findings, reports in $build/TARGET.log)" >&2
  exit 1
fi
echo "no findings"
