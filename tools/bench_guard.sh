#!/usr/bin/env bash
# Says what has become slower: measures this checkout's smoe-bench and compares its ratios (times faster than stock
# compositions, share of the matmul peak, instructions of the kernels) with those in benchmarks/figures.json. Ratios
# of one run depend little on the machine; times would. Exit status 1 if a figure is worse by more than the tolerance.
#   tools/bench_guard.sh                 compare
#   tools/bench_guard.sh --update        measure and write benchmarks/figures.json
# Environment: SMOE_BENCH (program), SMOE_GUARD_REPETITIONS (5), SMOE_GUARD_TOLERANCE (0.10), SMOE_GUARD_CONFIGS
# ("tiny small"). Instruction counts need valgrind and are left out without it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bench=${SMOE_BENCH:-build/release/bin/smoe-bench}
repetitions=${SMOE_GUARD_REPETITIONS:-5}
tolerance=${SMOE_GUARD_TOLERANCE:-0.10}
read -r -a configs <<<"${SMOE_GUARD_CONFIGS:-tiny small}"
mode=${1:-compare}
case "$mode" in
  compare | --update) ;;
  *) echo "error: found '$mode'; the only argument is --update" >&2; exit 2 ;;
esac
[ -x "$bench" ] || { echo "error: $bench is not there; build the target smoe-bench, or set SMOE_BENCH" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for config in "${configs[@]}"; do
  for kind in train forward budgets softtopk; do
    echo "== $kind on configs/bench/$config.yaml"
    "$bench" "$kind" "configs/bench/$config.yaml" --repetitions "$repetitions" --json "$work/$kind.$config.jsonl"
  done
done

# Instructions of our own loops in two steps of a very small model: the same count at every run. Valgrind shows programs
# a processor without AVX-512, so these are counts of the AVX2 versions.
if command -v valgrind >/dev/null; then
  echo "== instructions of the kernels (callgrind)"
  valgrind --tool=callgrind --callgrind-out-file="$work/callgrind.out" -q "$bench" train configs/bench/tiny.yaml \
    --only-library --repetitions 1 --threads 1 --set model.num_dense_layers=1 --set model.num_moe_layers=1 \
    --set model.vocab_size=512 --set bench.sequences=1 --set bench.sequence_length=128 >/dev/null 2>&1
  callgrind_annotate --threshold=100 "$work/callgrind.out" > "$work/callgrind.txt"
else
  echo "valgrind is not installed: instruction counts are left out"
fi

python3 - "$work" "$mode" "$tolerance" benchmarks/figures.json <<'PYTHON'
import json, pathlib, re, sys

work, mode, tolerance, figures_path = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), pathlib.Path(sys.argv[4])
KERNELS = ("swiglu_forward", "swiglu_backward", "swiglu_hidden", "swiglu_gradients", "norm_forward_row",
           "norm_backward_row", "row_maximum", "exponentiate_row", "softmax_backward_row", "rotate_head",
           "token_cross_entropy", "add_into")

# name -> (value, whether larger is better)
found = {}
for path in sorted(work.glob("*.jsonl")):
    config = path.name.split(".")[1]
    for line in path.read_text().splitlines():
        row = json.loads(line)
        labels = "".join(f" {key}={value}" for key, value in sorted(row["labels"].items()))
        name = f"{row['bench']} {config} {row['contestant']}{labels}"
        if "share_of_peak_core" in row and row["contestant"] in ("smoe", "dense") or "stepped" in row["contestant"]:
            found[f"{name}: share of the matmul peak"] = (row["share_of_peak_core"], True)
        elif row["contestant"] != "smoe":
            found[f"{name}: times the time of smoe"] = (row["times_first_core"], True)
annotation = work / "callgrind.txt"
if annotation.exists():
    counts = {}
    for line in annotation.read_text().splitlines():
        match = re.match(r"\s*([\d,]+)\s*\([^)]*\)\s+\S*:smoe::(\w+)\(", line)
        if match and match[2] in KERNELS:
            counts[match[2]] = counts.get(match[2], 0) + int(match[1].replace(",", ""))
    for kernel, count in counts.items():
        found[f"instructions of {kernel}"] = (count, False)

if mode == "--update":
    figures_path.write_text(json.dumps({name: round(value, 4) for name, (value, _) in sorted(found.items())}, indent=2) + "\n")
    print(f"wrote {len(found)} figures to {figures_path}")
    sys.exit(0)

kept = json.loads(figures_path.read_text())
worse = []
for name, (value, larger_is_better) in sorted(found.items()):
    if name not in kept:
        print(f"new: {name} = {value:.4g}")
        continue
    change = value / kept[name] - 1
    if (change if larger_is_better else -change) < -tolerance:
        worse.append(f"{name}: {kept[name]:.4g} before, {value:.4g} now ({100 * change:+.1f}%)")
for name in sorted(set(kept) - set(found)):
    print(f"not measured: {name}")
print("\n".join(["worse than benchmarks/figures.json:"] + worse) if worse else
      f"{len(found)} figures, none worse by more than {100 * tolerance:.0f}%")
sys.exit(1 if worse else 0)
PYTHON
