#!/usr/bin/env python3
"""Trains a tiny model that is evaluated on a benchmark while it trains.

Usage: training_evaluation_test.py BIN_FOLDER
"""
import json
import pathlib
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()
CONFIG_ERROR, DATA_ERROR = 2, 3

CONFIG = """\
model:
  architecture: stepped_moe
  vocab_size: 300
  dim: 32
  num_heads: 2
  num_kv_heads: 2
  head_dim: 16
  num_dense_layers: 1
  dense_ffn_dim: 32
  num_moe_layers: 2
  num_experts: 8
  expert_dim: 8
  budgets:
    - {name: small, experts_per_layer: 2}
    - {name: large, experts_per_layer: 4}
data:
  tokenizer: tokenizer.model
  train:
    - {name: text, path: tokens}
  sequence_length: 64
run_folder: run
num_threads: 1
steps: 5
batch_size: 2
micro_batch_size: 2
schedule: {warmup_steps: 1}
evaluation:
  tasks: [colours, "text:text.jsonl"]
  every_steps: 2
  data: benchmarks
  task_folder: evaluation
  limit: 3
"""

TASK = """\
name: colours
kind: multiple_choice
test_file: colours.jsonl
row:
  prompt: "The {thing} is"
  choices: [red, green]
  gold: {field: gold}
metrics: [acc, gold_bits_per_byte]
primary: acc
"""


def run(folder, *command):
    return subprocess.run([BIN / command[0], *command[1:]], cwd=folder, capture_output=True, text=True, timeout=120)


def prepare(folder):
    words = ["stone", "river", "light", "seven", "under", "garden", "paper", "winter", "copper", "letter"]
    with open(folder / "text.jsonl", "w") as out:
        for index in range(200):
            out.write(json.dumps({"text": " ".join(words[(index * k + k) % 10] for k in range(1, 30))}) + "\n")
    for command in (
        ["smoe-data", "train-tokenizer", "--input", "text.jsonl", "--vocab-size", "300", "--out", "tokenizer.model"],
        ["smoe-data", "tokenize", "--input", "text.jsonl", "--tokenizer", "tokenizer.model", "--out", "tokens"],
    ):
        done = run(folder, *command)
        assert done.returncode == 0, done.stderr
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "evaluation/tasks").mkdir(parents=True)
    (folder / "evaluation/tasks/colours.yaml").write_text(TASK)
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks/colours.jsonl").write_text(
        "".join(json.dumps({"thing": thing, "gold": gold}) + "\n" for thing, gold in
                [("leaf", 1), ("rose", 0), ("frog", 1), ("brick", 0)]))


def check_dry_run(folder):
    done = run(folder, "smoe-train", "config.yaml", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "colours: 3 rows" in done.stdout, done.stdout
    done = run(folder, "smoe-train", "config.yaml", "--dry-run", "--set", "evaluation.tasks=[colors]")
    assert done.returncode == CONFIG_ERROR and "colours" in done.stderr, done.stderr
    done = run(folder, "smoe-train", "config.yaml", "--dry-run", "--set", "evaluation.data=elsewhere")
    assert done.returncode == DATA_ERROR and "elsewhere/colours.jsonl" in done.stderr, done.stderr
    done = run(folder, "smoe-train", "config.yaml", "--dry-run", "--set", "evaluation.budgets=[huge]")
    assert done.returncode == CONFIG_ERROR and "huge" in done.stderr, done.stderr
    assert not (folder / "run").exists()


def check_training(folder):
    done = run(folder, "smoe-train", "config.yaml")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    evaluations = [line for line in lines if line["kind"] == "evaluation"]
    assert [line["step"] for line in evaluations] == [2, 4, 5], evaluations
    for line in evaluations:
        for name in ["colours/acc", "colours/gold_bits_per_byte"]:
            for budget in ["small", "large"]:
                assert f"{name}/{budget}" in line["results"], line
        results = json.loads((folder / f"run/evaluation/step-{line['step']:08}.json").read_text())
        value = results["tasks"]["colours"]["metrics"]["acc"]["budgets"]["small"]["value"]
        assert value == line["results"]["colours/acc/small"]
    assert "evaluation  colours/acc  small" in done.stdout, done.stdout
    # The last evaluation is that of the checkpoint: smoe-eval finds the same numbers.
    done = run(folder, "smoe-eval", "--checkpoint", "run", "--data", "benchmarks", "--task-folder", "evaluation", "--tasks",
               "colours", "--limit", "3", "--bos", "eos", "--threads", "1", "--out", "results.json")
    assert done.returncode == 0, done.stderr
    metrics = json.loads((folder / "results.json").read_text())["tasks"]["colours"]["metrics"]
    for budget in ["small", "large"]:
        alone = metrics["gold_bits_per_byte"]["budgets"][budget]["value"]
        trained = evaluations[-1]["results"][f"colours/gold_bits_per_byte/{budget}"]
        assert abs(alone - trained) < 1e-5, (alone, trained)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(folder)
        check_dry_run(folder)
        check_training(folder)
    print("ok")


if __name__ == "__main__":
    main()
