"""How long smoe-train takes from its start to the end of the first optimizer step.

    python3 benchmarks/startup/measure_startup.py --bin build/release/bin --config configs/bench/tiny.yaml

A tokenizer and a token store are made of the example corpus, and a run with the model of the config and its batch; then
smoe-train runs it anew several times, logging every step. The clock runs from the exec until the first step is in the
run's metrics file; beside it, what the log says of the step itself, and how long the process ran to its end (with the
checkpoint). With --cold, the system is asked to drop the pages of program and data first (as far as it does that for
files that nobody has open). Prints a table and one JSON line.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="folder of smoe-data and smoe-train")
    parser.add_argument("--config", type=pathlib.Path, default=ROOT / "configs/bench/tiny.yaml")
    parser.add_argument("--input", type=pathlib.Path, default=ROOT / "examples/corpus/train/stories.jsonl")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    return parser.parse_args()


def make_run(arguments, folder):
    """A config of smoe-train in `folder`; returns its path and that of the run's folder."""
    text = arguments.config.read_text()
    value = lambda key: int(re.search(rf"^\s*{key}: (\d+)", text, re.MULTILINE)[1])
    tokenizer, store = folder / "tokenizer.model", folder / "tokens"
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([arguments.bin / "smoe-data", "train-tokenizer", "--input", arguments.input, "--vocab-size", "2048",
                    "--out", tokenizer], **quiet)
    subprocess.run([arguments.bin / "smoe-data", "tokenize", "--input", arguments.input, "--tokenizer", tokenizer,
                    "--out", store], **quiet)
    model = text[text.index("model:"):text.index("\nbench:")]
    run_folder = folder / "run"
    config = folder / "run.yaml"
    config.write_text(f"""{model}
data:
  tokenizer: {tokenizer}
  train: [{{name: text, path: {store}}}]
  sequence_length: {value("sequence_length")}
run_folder: {run_folder}
steps: 2
batch_size: {value("sequences")}
micro_batch_size: {value("sequences")}
log_every_steps: 1
schedule: {{warmup_steps: 1}}
""")
    return config, run_folder


def drop_pages(paths):
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def core_seconds(pid):
    """Processor time of all threads of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def has_ended(process):
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def measure(arguments, config, run_folder):
    shutil.rmtree(run_folder, ignore_errors=True)
    if arguments.cold:
        drop_pages([arguments.bin / "smoe-train", *config.parent.glob("tok*")])
    metrics = run_folder / "metrics.jsonl"
    start = time.perf_counter()
    process = subprocess.Popen([arguments.bin / "smoe-train", config], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while not has_ended(process) and not (metrics.exists() and '"step":1,' in metrics.read_text()):
        time.sleep(0.002)
    first_step_s = time.perf_counter() - start
    first_step_core_s = core_seconds(process.pid)  # an ended process keeps its times until it is waited for
    errors = process.communicate()[1].decode()
    if process.returncode != 0:
        raise SystemExit(f"smoe-train ended with {process.returncode}:\n{errors}")
    first = json.loads(metrics.read_text().splitlines()[0])
    return {"first_step_s": first_step_s, "first_step_core_s": first_step_core_s, "step_s": first["seconds"], "process_s": time.perf_counter() - start}


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as scratch:
        config, run_folder = make_run(arguments, pathlib.Path(scratch))
        runs = [measure(arguments, config, run_folder) for _ in range(arguments.repetitions + 1)][1:]
    print(f"{'':24} {'best s':>8} {'median s':>8}")
    for key, name in (("first_step_s", "exec to end of step 1"), ("first_step_core_s", "the same, core-seconds"),
                      ("step_s", "step 1 by the log"), ("process_s", "whole process")):
        values = [run[key] for run in runs]
        print(f"{name:24} {min(values):8.2f} {statistics.median(values):8.2f}")
    print(json.dumps({"config": arguments.config.name, "cold": arguments.cold, "runs": runs}))


if __name__ == "__main__":
    main()
