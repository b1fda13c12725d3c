#!/usr/bin/env python3
"""tools/gpu_check.sh without a GPU: what it says, and what it makes of results, with stand-ins for GPU and programs.

Usage: gpu_check_test.py SOURCE_FOLDER
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1]).resolve()
NVIDIA_SMI = """#!/bin/sh
case "$*" in *name*) echo "NVIDIA H200" ;; *driver*) echo 580.65 ;; esac
"""
TESTS = """#!/bin/sh
for argument in "$@"; do case $argument in --gtest_output=json:*) file=${argument#--gtest_output=json:} ;; esac; done
echo '{"testsuites":[{"name":"Suite","testsuite":[{"name":"Claim","result":"'"${RESULT:-COMPLETED}"'"}]}]}' > "$file"
"""
BENCH = """#!/bin/sh
while [ $# -gt 0 ]; do
  [ "$1" = --json ] && file=$2
  [ "$1" = --peak-tflops ] && peak=$2
  [ "$1" = --activation-checkpointing ] && [ -n "$BREAK" ] && { echo "out of memory"; exit 3; }
  shift
done
echo '{"sequences":4,"sequence_length":2048,"peak_tflops":'"$peak"',"rows":[{"name":"train stepped_moe L",
"milliseconds":12.5,"tokens_per_s":655360,"tflops":400,"mfu":0.4},
{"name":"optimizer step","milliseconds":3,"tokens_per_s":0,"tflops":0,"mfu":0}]}' > "$file"
"""


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def check(folder, *arguments, **variables):
    path = f"{folder / 'gpu'}:{os.environ['PATH']}"
    done = subprocess.run(
        [SOURCE / "tools" / "gpu_check.sh", "--out", folder / "out", "--build-dir", folder / "build", *arguments],
        env={**os.environ, "PATH": path, **variables}, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def expect(condition, output):
    assert condition, output


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_program(folder / "gpu" / "nvidia-smi", NVIDIA_SMI)
        status, output = check(folder)
        expect(status == 2 and "lacks one of: gpu_tests" in output, output)
        for program in ("gpu_tests", "routed_experts_tests", "model_unit_tests"):
            write_program(folder / "build" / "bin" / program, TESTS)
        write_program(folder / "build" / "bin" / "smoe-gpu-bench", BENCH)

        status, output = check(folder)
        expect(status == 0, output)
        expect("3 passed, 0 failed, 0 skipped" in output and "40.0 %" in output and "655,360 tok/s" in output, output)
        summary = json.loads((folder / "out" / "summary.json").read_text())
        assert summary["gpu"] == "NVIDIA H200" and summary["tests"]["passed"] == 3, summary
        assert summary["benchmarks"]["bf16"]["peak_tflops"] == 989.5, summary

        # With a GPU there, what is skipped was not checked.
        status, output = check(folder, "--tests-only", RESULT="SKIPPED")
        expect(status == 1 and "3 skipped" in output and "skipped: Suite.Claim" in output, output)
        assert json.loads((folder / "out" / "summary.json").read_text())["benchmarks"] == {}

        status, output = check(folder, "--bench-only", BREAK="1")
        expect(status == 1 and "FAILED with status 3" in output and "out of memory" in output, output)
        assert json.loads((folder / "out" / "summary.json").read_text())["failed_steps"] == ["bench-bf16-recompute"]

        write_program(folder / "gpu" / "nvidia-smi", "#!/bin/sh\necho 'No devices were found' >&2\nexit 6\n")
        status, output = check(folder)
        expect(status == 2 and "lists none (No devices were found)" in output, output)
        status, output = check(folder, "--bad")
        expect(status == 2 and "unknown option --bad; allowed: --out" in output, output)
        status, output = check(folder, "--tests-only", "--bench-only")
        expect(status == 2 and "exclude each other" in output, output)
    print("gpu_check.sh: as expected")


if __name__ == "__main__":
    main()
