#!/usr/bin/env python3
"""Downloads benchmarks from the Hugging Face hub into the layout that smoe-eval reads: one folder a benchmark, JSONL.

    pip install datasets
    tools/fetch_benchmarks.py --out benchmarks [arc_easy mmlu ...]

Without names it fetches all; files that exist are kept. `--source FOLDER` reads data sets from FOLDER/OWNER/NAME, as
`hf download --repo-type dataset` leaves them, instead of the hub. Few-shot files of fixed shots (gsm8k, mbpp, math) are
not data sets: docs/evaluation.md says what they hold, and where Arena-Hard and the judges' prompts come from. The licences are those of the data's authors; SciQ and AlpacaEval
forbid commercial use.
"""

import argparse
import json
import os
import pathlib
import re
import sys


def same(row):
    return row


def keep(*fields):
    return lambda row: {field: row[field] for field in fields}


def triviaqa(row):
    return {"question": row["question"], "answer": row["answer"]["aliases"]}


def clean_hellaswag(text):
    text = re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". "))
    return text.replace("  ", " ")


def hellaswag_shot(row):
    """A row of the file of shots, whose texts are cleaned as those of the evaluated rows are by the task."""
    query = f"{row['activity_label']}: {row['ctx_a']} {row['ctx_b'].capitalize()}"
    return {"ind": row["ind"], "query": clean_hellaswag(query),
            "choices": [clean_hellaswag(ending) for ending in row["endings"]], "gold": int(row["label"])}


def ifeval(row):
    # Columns of a table exist in every row: what is null was not given.
    kwargs = [{key: value for key, value in given.items() if value is not None} for given in row["kwargs"]]
    return {**keep("key", "prompt", "instruction_id_list")(row), "kwargs": kwargs}


# file below --out: (data set, configuration, split, what becomes of a row)
ARC = keep("id", "question", "choices", "answerKey")
PIQA = keep("goal", "sol1", "sol2", "label")
WINOGRANDE = keep("sentence", "option1", "option2", "answer")
SCIQ = keep("question", "distractor3", "distractor1", "distractor2", "correct_answer", "support")
MMLU = keep("question", "subject", "choices", "answer")
FILES = {
    "lambada_openai/test.jsonl": ("EleutherAI/lambada_openai", "default", "test", keep("text")),
    "hellaswag/validation.jsonl": ("Rowan/hellaswag", None, "validation", same),
    "hellaswag/train_subset.jsonl": ("Rowan/hellaswag", None, "train", hellaswag_shot),
    "winogrande/validation.jsonl": ("allenai/winogrande", "winogrande_xl", "validation", WINOGRANDE),
    "winogrande/train_xl.jsonl": ("allenai/winogrande", "winogrande_xl", "train", WINOGRANDE),
    "piqa/validation.jsonl": ("baber/piqa", None, "validation", PIQA),
    "piqa/train.jsonl": ("baber/piqa", None, "train", PIQA),
    "sciq/test.jsonl": ("allenai/sciq", None, "test", SCIQ),
    "sciq/validation.jsonl": ("allenai/sciq", None, "validation", SCIQ),
    "triviaqa/unfiltered_validation.jsonl": ("mandarjoshi/trivia_qa", "rc.nocontext", "validation", triviaqa),
    "triviaqa/unfiltered_train_subset.jsonl": ("mandarjoshi/trivia_qa", "rc.nocontext", "train", triviaqa),
    "webquestions/test.jsonl": ("stanfordnlp/web_questions", None, "test", keep("question", "answers")),
    "webquestions/train.jsonl": ("stanfordnlp/web_questions", None, "train", keep("question", "answers")),
    "mmlu/test.jsonl": ("cais/mmlu", "all", "test", MMLU),
    "mmlu/validation.jsonl": ("cais/mmlu", "all", "validation", MMLU),
    "mmlu/dev.jsonl": ("cais/mmlu", "all", "dev", MMLU),
    "gsm8k/test.jsonl": ("openai/gsm8k", "main", "test", same),
    "gsm8k/train.jsonl": ("openai/gsm8k", "main", "train", same),
    "humaneval/HumanEval.jsonl": ("openai/openai_humaneval", None, "test", same),
    "mbpp/mbpp.jsonl": ("google-research-datasets/mbpp", "full", "prompt+test+validation+train", same),
    "multipl_e/humaneval-java-reworded.jsonl": ("nuprl/MultiPL-E", "humaneval-java", "test", same),
    "multipl_e/humaneval-swift-reworded.jsonl": ("nuprl/MultiPL-E", "humaneval-swift", "test", same),
    "ifeval/input_data.jsonl": ("google/IFEval", None, "train", ifeval),
    "wikitext/test.jsonl": ("EleutherAI/wikitext_document_level", "wikitext-2-raw-v1", "test", keep("page")),
}
# file below --out: (data set, file in it). Rows whose keys differ do not survive a table, so these are taken as they are.
RAW_FILES = {
    "mmau/tool_use_execution_all_20240712.jsonl": ("apple/mmau", "tool_use_execution_all_20240712.jsonl"),
    "alpaca_eval/alpaca_eval_gpt4_turbo_reference.jsonl": ("tatsu-lab/alpaca_eval", "alpaca_eval_gpt4_baseline.json"),
}
for name, config in (("arc_easy", "ARC-Easy"), ("arc_challenge", "ARC-Challenge")):
    for split in ("test", "validation", "train"):
        FILES[f"{name}/{split}.jsonl"] = ("allenai/ai2_arc", config, split, ARC)


def table_rows(file, source):
    import datasets

    name, config, split, convert = FILES[file]
    where = name if source is None else str(source / name)
    if source is not None and not (source / name).is_dir():
        raise FileNotFoundError(f"{source / name}: no such data set folder")
    return [convert(row) for row in datasets.load_dataset(where, config, split=split)]


def raw_rows(file, source):
    """The objects of a JSONL file, or of a file with one JSON list."""
    name, path = RAW_FILES[file]
    if source is None:
        import huggingface_hub

        local = pathlib.Path(huggingface_hub.hf_hub_download(name, path, repo_type="dataset"))
    else:
        local = source / name / path
    text = local.read_text(encoding="utf-8")
    if text.lstrip().startswith("["):
        return json.loads(text)
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def fetch(file, out, source):
    rows = raw_rows(file, source) if file in RAW_FILES else table_rows(file, source)
    target = out / file
    target.parent.mkdir(parents=True, exist_ok=True)
    # Under another name until it is complete, so that a broken download is never taken for a benchmark.
    temporary = target.with_suffix(".partial")
    with temporary.open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
    os.replace(temporary, target)
    return len(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", nargs="*", help="folders; default: all")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder for smoe-eval --data")
    parser.add_argument("--source", type=pathlib.Path, help="folder of data sets instead of the hub")
    arguments = parser.parse_args()
    files = [*FILES, *RAW_FILES]
    known = sorted({file.split("/")[0] for file in files})
    unknown = sorted(set(arguments.benchmarks) - set(known))
    if unknown:
        parser.error(f"unknown benchmarks {', '.join(unknown)}; known are {', '.join(known)}")
    failed = 0
    for file in files:
        if arguments.benchmarks and file.split("/")[0] not in arguments.benchmarks:
            continue
        if (arguments.out / file).exists():
            print(f"{file}: exists")
            continue
        try:
            print(f"{file}: {fetch(file, arguments.out, arguments.source)} rows")
        except Exception as error:  # one data set that is gone must not keep the others away
            failed += 1
            print(f"{file}: FAILED: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
