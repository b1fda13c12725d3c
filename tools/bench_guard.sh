#!/usr/bin/env bash
# Says what has become slower: measures this checkout's smoe-bench and compares its ratios (times faster than stock
# compositions, share of the matmul peak, cost over the dense model, instructions of the kernels) with those in
# benchmarks/figures.json. Ratios of one run depend little on the machine; times would. Exit status 1 if a figure is
# worse by more than the tolerance, 2 if something could not be measured.
#   tools/bench_guard.sh                        compare everything
#   tools/bench_guard.sh softtopk forward       compare these parts: train forward budgets softtopk kernels
#   tools/bench_guard.sh --update [PART...]     measure and write the figures of these parts, keep the others
# Environment: SMOE_BENCH (program), SMOE_GUARD_FIGURES (benchmarks/figures.json), SMOE_GUARD_REPETITIONS (5),
# SMOE_GUARD_TOLERANCE (0.10), SMOE_GUARD_CONFIGS ("tiny small"). The part kernels counts instructions with valgrind;
# without a list of parts it is left out where valgrind is not installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { echo "error: $1" >&2; exit 2; }

bench=${SMOE_BENCH:-build/release/bin/smoe-bench}
figures=${SMOE_GUARD_FIGURES:-benchmarks/figures.json}
repetitions=${SMOE_GUARD_REPETITIONS:-5}
read -r -a configs <<<"${SMOE_GUARD_CONFIGS:-tiny small}"
options=(--tolerance "${SMOE_GUARD_TOLERANCE:-0.10}")
parts=()
for argument in "$@"; do
  case "$argument" in
    --update) options+=(--update) ;;
    train | forward | budgets | softtopk | kernels) parts+=("$argument") ;;
    *) fail "found '$argument'; allowed are --update and the parts train, forward, budgets, softtopk and kernels" ;;
  esac
done
[ -x "$bench" ] || fail "$bench is not there; build the target smoe-bench, or set SMOE_BENCH"
if [ ${#parts[@]} -eq 0 ]; then
  parts=(train forward budgets softtopk)
  if command -v valgrind >/dev/null; then parts+=(kernels); else echo "valgrind is not installed: no instruction counts"; fi
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Steps of a very small model: the same instructions every time. Valgrind shows programs a processor without AVX-512,
# so these are counts of the AVX2 versions. Reading LibTorch's symbols takes most of the minutes.
count_instructions() {
  command -v valgrind >/dev/null || fail "the part kernels needs valgrind (apt-get install valgrind)"
  echo "== instructions of the kernels (callgrind)"
  valgrind --tool=callgrind --callgrind-out-file="$work/callgrind.out" -q "$bench" train configs/bench/tiny.yaml \
    --only-library --no-peak --repetitions 1 --threads 1 --set model.num_dense_layers=1 --set model.num_moe_layers=1 \
    --set model.vocab_size=512 --set model.dim=64 --set model.num_heads=1 --set model.num_kv_heads=1 \
    --set bench.sequences=1 --set bench.sequence_length=64 >"$work/valgrind.log" 2>&1 ||
    { tail -20 "$work/valgrind.log" >&2; fail "smoe-bench under valgrind failed, see above"; }
  callgrind_annotate --threshold=100 "$work/callgrind.out" >"$work/callgrind.txt" ||
    fail "callgrind_annotate could not read what valgrind wrote"
}

for part in "${parts[@]}"; do
  if [ "$part" = kernels ]; then count_instructions; continue; fi
  for config in "${configs[@]}"; do
    echo "== $part on configs/bench/$config.yaml"
    "$bench" "$part" "configs/bench/$config.yaml" --repetitions "$repetitions" --json "$work/$part.$config.jsonl" ||
      fail "smoe-bench $part on $config failed, see above"
  done
done
python3 tools/bench_figures.py "$work" "$figures" "${options[@]}"
