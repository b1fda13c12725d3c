#!/usr/bin/env bash
# Runs every GPU test and the GPU benchmarks on the first visible NVIDIA GPU, prints a summary and leaves JSON:
#   tools/gpu_check.sh [--out DIR] [--build-dir DIR] [--seconds S] [--tests-only | --bench-only] [--peak-tflops N]
# Under 5 minutes on one H200 where the preset `cuda` is built (build/cuda); where it is not, it is built first, which
# takes several minutes more and is timed by itself. Exit status: 0 all passed, 1 a test or benchmark failed, 2 nothing
# could be run. Files in DIR (default: build/gpu-check): summary.json, tests-*.json (GoogleTest), bench-*.json, *.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out="build/gpu-check"
build=build/cuda
seconds=1
peak=
run_tests=1
run_bench=1

usage() { sed -n '2,7s/^# \{0,1\}//p' tools/gpu_check.sh; }
stop() { printf 'error: %s\n' "$*" >&2; exit 2; }
say() { printf '\033[1m==>\033[0m %s\n' "$*"; }

while [ $# -gt 0 ]; do
  case "$1" in
    --out | --build-dir | --seconds | --peak-tflops)
      [ $# -ge 2 ] || stop "$1 needs a value"
      case "$1" in
        --out) out=$2 ;;
        --build-dir) build=$2 ;;
        --seconds) seconds=$2 ;;
        --peak-tflops) peak=$2 ;;
      esac
      shift 2 ;;
    --tests-only) run_bench=0; shift ;;
    --bench-only) run_tests=0; shift ;;
    -h | --help) usage; exit 0 ;;
    *) stop "unknown option $1; allowed: --out --build-dir --seconds --peak-tflops --tests-only --bench-only" ;;
  esac
done
[ $((run_tests + run_bench)) -gt 0 ] || stop "--tests-only and --bench-only exclude each other"

# --- the GPU -------------------------------------------------------------------------------------------------------
if ! command -v nvidia-smi >/dev/null; then
  stop "no NVIDIA GPU: nvidia-smi is not installed. Run this on a machine with a GPU and its driver (580 or newer for
CUDA 13). Without one, 'ctest --preset release' runs the arithmetic of the GPU paths on the CPU and skips the rest."
fi
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) || true
[ -n "$gpu" ] || stop "no NVIDIA GPU: nvidia-smi is there but lists none ($(nvidia-smi 2>&1 | head -n 1)). Check the
driver, and CUDA_VISIBLE_DEVICES or the container's access to the device."
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
say "GPU: $gpu, driver $driver"

# Dense bfloat16 TFLOP/s by data sheet; 0: unknown, no MFU.
if [ -z "$peak" ]; then
  case "$gpu" in
    *B200*) peak=2250 ;;
    *H200* | *H100*80GB*HBM3*) peak=989.5 ;;
    *H100*) peak=756 ;;
    *A100*) peak=312 ;;
    *L40S*) peak=362 ;;
    *4090*) peak=165 ;;
    *) peak=0; say "peak of this GPU unknown: no MFU (give --peak-tflops)" ;;
  esac
fi

# --- the build -----------------------------------------------------------------------------------------------------
programs=(gpu_tests routed_experts_tests model_unit_tests smoe-gpu-bench)
is_built() {
  local program
  for program in "${programs[@]}"; do [ -x "$build/bin/$program" ] || return 1; done
}
if ! is_built; then
  [ "$build" = build/cuda ] || stop "$build/bin lacks one of: ${programs[*]}. Build them, or leave out --build-dir."
  say "building the preset cuda: several minutes (not part of the 5 minutes of the check)"
  build_start=$SECONDS
  tools/build.sh cuda "${programs[@]}"
  say "built in $((SECONDS - build_start)) s"
fi

mkdir -p "$out"
rm -f "$out"/summary.json "$out"/tests-*.json "$out"/bench-*.json "$out"/*.log
start=$SECONDS
failed=()
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

# run NAME LIMIT COMMAND...: keeps the output in a log, shows its end on failure.
run() {
  local name=$1 limit=$2
  shift 2
  local began=$SECONDS
  if timeout "$limit" "$@" >"$out/$name.log" 2>&1; then
    say "$name: $((SECONDS - began)) s"
  else
    local status=$?
    failed+=("$name")
    say "$name: FAILED with status $status after $((SECONDS - began)) s (124: over its limit of $limit s)"
    tail -n 25 "$out/$name.log" | sed 's/^/    /'
  fi
}

# --- tests ---------------------------------------------------------------------------------------------------------
if [ "$run_tests" = 1 ]; then
  # The first holds the GPU tests; the others have some among theirs.
  run tests-gpu 120 "$build/bin/gpu_tests" --gtest_output="json:$out/tests-gpu.json"
  run tests-experts 60 "$build/bin/routed_experts_tests" --gtest_filter='*Cuda*:*Gpu*' \
    --gtest_output="json:$out/tests-experts.json"
  run tests-model 60 "$build/bin/model_unit_tests" --gtest_filter='*Cuda*:*Gpu*' \
    --gtest_output="json:$out/tests-model.json"
fi

# --- benchmarks ----------------------------------------------------------------------------------------------------
bench() {
  local name=$1
  shift
  run "bench-$name" 120 "$build/bin/smoe-gpu-bench" --model configs/bench/gpu.yaml --device cuda \
    --seconds "$seconds" --peak-tflops "$peak" --json "$out/bench-$name.json" "$@"
}
if [ "$run_bench" = 1 ]; then
  bench bf16
  bench bf16-recompute --activation-checkpointing all
fi
elapsed=$((SECONDS - start))
status=0

# --- summary -------------------------------------------------------------------------------------------------------
python3 - "$out" "$gpu" "$driver" "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" "$elapsed" \
  "${failed[*]:-}" <<'PYTHON' || status=$?
import glob, json, os, sys

out, gpu, driver, commit, elapsed, failed = sys.argv[1:7]
tests = {"passed": 0, "failed": 0, "skipped": 0, "not_passed": []}
for path in sorted(glob.glob(os.path.join(out, "tests-*.json"))):
    for suite in json.load(open(path))["testsuites"]:
        for test in suite["testsuite"]:
            name = f'{suite["name"]}.{test["name"]}'
            if test.get("result") == "SKIPPED":
                kind = "skipped"
            else:
                kind = "failed" if test.get("failures") else "passed"
            tests[kind] += 1
            if kind != "passed":
                tests["not_passed"].append(f"{kind}: {name}")
benches = {}
for path in sorted(glob.glob(os.path.join(out, "bench-*.json"))):
    benches[os.path.basename(path)[len("bench-"):-len(".json")]] = json.load(open(path))
summary = {"gpu": gpu, "driver": driver, "commit": commit, "seconds": int(elapsed), "failed_steps": failed.split(),
           "tests": tests, "benchmarks": benches}
with open(os.path.join(out, "summary.json"), "w") as file:
    json.dump(summary, file, indent=2)

print(f'\n{gpu}, commit {commit}, {elapsed} s')
print(f'tests: {tests["passed"]} passed, {tests["failed"]} failed, {tests["skipped"]} skipped')
for line in tests["not_passed"]:
    print(f"  {line}")
for name, bench in benches.items():
    print(f'\n{name}: {bench["sequences"]} x {bench["sequence_length"]} tokens, peak {bench["peak_tflops"]:g} TFLOP/s')
    for row in bench["rows"]:
        speed = f'{row["tokens_per_s"]:12,.0f} tok/s' if row["tokens_per_s"] else " " * 18
        share = f'{row["tflops"]:8.1f} TFLOP/s {100 * row["mfu"]:5.1f} %' if row["tflops"] else ""
        print(f'  {row["name"]:<44} {row["milliseconds"]:10.3f} ms {speed} {share}')
# A GPU is there: what was skipped was not checked.
sys.exit(1 if failed or tests["failed"] or tests["skipped"] else 0)
PYTHON
say "all files are in $out"
exit "$status"
