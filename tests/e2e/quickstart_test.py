#!/usr/bin/env python3
"""The road of tools/quickstart.sh on a few steps: text to tokens, training, scores at every budget, a plot.

Usage: quickstart_test.py SOURCE_FOLDER BIN_FOLDER (exit 0 if every part did its work).
"""
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE, BIN = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
DOMAINS = ["stories", "novels", "textbook_science", "tech_docs", "news_government", "code_python"]
TASKS = ["lambada_openai", "arc_easy", "arc_challenge", "hellaswag", "winogrande", "piqa"]
BUDGETS = ["XS", "S", "M", "L"]


def run(folder, tool, *arguments):
    done = subprocess.run([BIN / tool, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{tool} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run_folder = folder / "runs" / "quickstart"
        corpus = SOURCE / "examples" / "corpus"
        tokenizer = run_folder / "tokenizer.model"
        for split in ("train", "validation"):
            (run_folder / "tokens" / split).mkdir(parents=True)
        run(folder, "smoe-data", "train-tokenizer", "--input", *(corpus / "validation").glob("*.jsonl"),
            "--vocab-size", 1000, "--out", tokenizer)
        for split in ("train", "validation"):
            for domain in DOMAINS:
                # The small split serves for both: the test is about the road, not about what is learned.
                run(folder, "smoe-data", "tokenize", "--input", corpus / "validation" / f"{domain}.jsonl", "--tokenizer",
                    tokenizer, "--out", run_folder / "tokens" / split / domain)

        lines = run(folder, "smoe-train", SOURCE / "configs" / "quickstart" / "flexible.yaml", "--set", "steps=6", "--set",
                    "data.sequence_length=64", "--set", "log_every_steps=1", "--set", "schedule.warmup_steps=1", "--set",
                    "validation_rows=2")
        for budget in BUDGETS:
            assert re.search(rf"step 6/6 .*\b{budget} \d", lines), lines
        steps = [json.loads(line) for line in open(run_folder / "flexible" / "metrics.jsonl")]
        losses = [step["loss"] for step in steps if step["kind"] == "train"]
        for budget in BUDGETS:
            assert losses[-1][budget] < losses[0][budget], f"the loss of {budget} did not fall: {losses}"

        table = run(folder, "smoe-eval", "--checkpoint", run_folder / "flexible", "--data", SOURCE / "examples" / "benchmarks",
                    "--tasks", ",".join(TASKS), "--text", corpus / "validation" / "stories.jsonl", "--limit", 3, "--bos", "eos",
                    "--max-length", 256, "--out", folder / "results.json")
        results = json.dumps(json.loads((folder / "results.json").read_text()))
        assert all(f'"{word}"' in results for word in TASKS + BUDGETS), results
        assert all(budget in table for budget in BUDGETS), table
        assert not re.search(r"\bNaN\b|\bInfinity\b", results)
        assert "|" in (folder / "results.md").read_text()

        run(folder, "smoe-plot", run_folder / "flexible", "--out", folder / "loss.svg")
        assert (folder / "loss.svg").read_text().lstrip().startswith("<?xml")
        assert math.isfinite(losses[-1]["L"])
    print("text to scores at every budget: every part did its work")


main()
