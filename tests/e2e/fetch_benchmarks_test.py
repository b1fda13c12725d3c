"""tools/fetch_benchmarks.py on data set folders that this test makes. Skips (77) without the `datasets` library."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TOOL = pathlib.Path(sys.argv[1]) / "tools/fetch_benchmarks.py"
TASKS = pathlib.Path(sys.argv[1]) / "configs/eval/tasks"
# Files of fixed shots and of other projects' repositories, which docs/evaluation.md describes.
BY_HAND = {"gsm8k/fewshot_cot_8shot.jsonl", "math/fewshot_minerva_4shot.jsonl", "mbpp/fewshot_3shot.jsonl",
           "math/test.jsonl", "arena_hard/question.jsonl"}


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def fetch(folder, *names):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "cache"),
                   "HF_DATASETS_CACHE": str(folder / "cache")}
    return subprocess.run([sys.executable, TOOL, "--source", folder / "source", "--out", folder / "out", *names],
                          capture_output=True, text=True, env=environment)


def check_that_tasks_find_their_files():
    text = TOOL.read_text()
    for task in TASKS.glob("*.yaml"):
        for file in re.findall(r"^(?:test|validation|train)_file: (\S+)", task.read_text(), re.MULTILINE):
            made_in_a_loop = re.fullmatch(r"arc_(easy|challenge)/(test|validation|train).jsonl", file)
            assert f'"{file}"' in text or made_in_a_loop or file in BY_HAND, f"{task.name}: nobody fetches {file}"


def main():
    check_that_tasks_find_their_files()
    if importlib.util.find_spec("datasets") is None:
        print("skipped: no module named datasets")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        gsm8k = folder / "source/openai/gsm8k"
        write(gsm8k / "main/test.jsonl", [{"question": "é?", "answer": "#### 1"}])
        write(gsm8k / "main/train.jsonl", [{"question": "b?", "answer": "#### 2"}] * 3)
        (gsm8k / "README.md").write_text("---\nconfigs:\n- config_name: main\n  data_files:\n"
                                         "  - split: test\n    path: main/test.jsonl\n"
                                         "  - split: train\n    path: main/train.jsonl\n---\n")
        write(folder / "source/google/IFEval/train.jsonl",
              [{"key": 1, "prompt": "p", "instruction_id_list": ["a:b", "c:d"],
                "kwargs": [{"num": 3, "relation": None}, {"num": None, "relation": None}]}])

        hellaswag = folder / "source/Rowan/hellaswag"
        row = {"ind": 4, "activity_label": "Roof shingle removal", "ctx_a": " A man is on a roof.", "ctx_b": "HE",
               "endings": ["is [step] ripping  tiles off.", "stops. [title] Then"], "label": "1"}
        for split in ("train", "validation"):
            write(hellaswag / f"{split}.jsonl", [row])
        # A table would give every row all the keys of the others.
        calls = [{"messages": [{"role": "user", "content": "é"}], "target_message": {"content": "a"}},
                 {"messages": [{"role": "user", "content": "b"}], "tools": [{"x": {"y": 1}}], "target_message": {}}]
        write(folder / "source/apple/mmau/tool_use_execution_all_20240712.jsonl", calls)
        outputs = [{"dataset": "d", "instruction": "i", "output": "o", "generator": "g"}]
        alpaca = folder / "source/tatsu-lab/alpaca_eval"
        alpaca.mkdir(parents=True)
        (alpaca / "alpaca_eval_gpt4_baseline.json").write_text(json.dumps(outputs, indent=2))

        result = fetch(folder, "gsm8k", "ifeval", "mmlu", "mmau", "alpaca_eval", "hellaswag")
        assert result.returncode == 1, "a data set that is not there is a failure"
        assert "mmlu/dev.jsonl: FAILED" in result.stderr and "no such data set folder" in result.stderr, result.stderr
        assert not (folder / "out/mmlu/dev.jsonl").exists()
        assert read(folder / "out/gsm8k/test.jsonl") == [{"question": "é?", "answer": "#### 1"}]
        assert len(read(folder / "out/gsm8k/train.jsonl")) == 3
        # Null columns were not given: IFEval's checkers must not see them.
        assert read(folder / "out/ifeval/input_data.jsonl")[0]["kwargs"] == [{"num": 3}, {}]

        assert read(folder / "out/hellaswag/validation.jsonl") == [row]
        assert read(folder / "out/hellaswag/train_subset.jsonl") == [
            {"ind": 4, "query": "Roof shingle removal: A man is on a roof. He",
             "choices": ["is ripping tiles off.", "stops.. Then"], "gold": 1}]

        assert read(folder / "out/mmau/tool_use_execution_all_20240712.jsonl") == calls
        assert read(folder / "out/alpaca_eval/alpaca_eval_gpt4_turbo_reference.jsonl") == outputs

        (folder / "out/gsm8k/test.jsonl").write_text("mine\n")
        again = fetch(folder, "gsm8k")
        assert again.returncode == 0 and "gsm8k/test.jsonl: exists" in again.stdout, again.stdout
        assert (folder / "out/gsm8k/test.jsonl").read_text() == "mine\n"
        unknown = fetch(folder, "gsm9k")
        assert unknown.returncode == 2 and "gsm9k" in unknown.stderr and "gsm8k" in unknown.stderr
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
