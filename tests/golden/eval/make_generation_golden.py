"""Writes generation_golden.json with the real lm-evaluation-harness: GSM8K (generate_until) and one subject of MMLU.

Set-up as for make_golden.py; run in this folder after it, with its tiny_llama:
    python make_generation_golden.py

The rows are made up (data/gsm8k, data/mmlu); the prompts, stops, filters and metrics are the harness's own. Only the
number of new tokens is lower than the task's, because the model sees 256 tokens.
"""

import json
import os
import pathlib
import re
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import lm_eval
import sentencepiece
import torch
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

import make_golden

HERE = pathlib.Path(__file__).resolve().parent
MAX_NEW_TOKENS = 48
SUBJECT = "abstract_algebra"


class GeneratingModel(HFLM):
    """Remembers the ids of prompts and the raw texts."""

    def tok_decode(self, tokens, skip_special_tokens=True):
        """SentencePiece's own text. transformers differs where bytes are not UTF-8, as only an untrained model writes them:
        it replaces every byte of the run, the ASCII ones too."""
        if isinstance(tokens, int) or not skip_special_tokens:  # the spelling of EOS, a stop text
            return super().tok_decode(tokens, skip_special_tokens)
        processor = sentencepiece.SentencePieceProcessor(str(make_golden.CHECKPOINT / "tokenizer.model"))
        return processor.decode([int(token) for token in tokens if not processor.is_control(int(token))])

    def tok_batch_encode(self, strings, *args, **kwargs):
        encoded = super().tok_batch_encode(strings, *args, **kwargs)
        self.prompts = getattr(self, "prompts", {})
        for text, ids, mask in zip(strings, *encoded):
            self.prompts[text] = ids[mask.bool()].tolist()
        return encoded


def existing_model(folder):
    """The model of make_golden.py: the same seed gives the same weights, its tokenizer file is left alone."""
    return make_golden.make_model(folder)


def config_of(name, path, files):
    config = load_yaml(pathlib.Path(lm_eval.__file__).parent / "tasks" / path, resolve_func=True)
    config.pop("tag", None)
    config.update(task=name, dataset_path="json", dataset_name=None,
                  dataset_kwargs={"data_files": {split: str(HERE / "data" / file) for split, file in files.items()}})
    return config


WORD_FILTERS = [("first-word", "([a-z]{3,})", 0), ("last-word", "([a-z]{3,})", -1)]


def gsm8k(model, shots, stop, words=False):
    """With `words`: other data and filters, because a random model never writes a number."""
    config = config_of("gsm8k", "gsm8k/gsm8k.yaml",
                       {"train": "gsm8k/train.jsonl", "test": f"gsm8k/{'words' if words else 'test'}.jsonl"})
    if words:
        config["filter_list"] = [{"name": name, "filter": [
            {"function": "regex", "regex_pattern": pattern, "group_select": match}, {"function": "take_first"}]}
            for name, pattern, match in WORD_FILTERS]
    config["generation_kwargs"]["max_gen_toks"] = MAX_NEW_TOKENS
    config["generation_kwargs"]["until"] += stop
    results = lm_eval.simple_evaluate(model=model, tasks=[config], num_fewshot=shots, log_samples=True,
                                      bootstrap_iters=0, task_manager=TaskManager(verbosity="ERROR"))
    rows = {}
    for sample in results["samples"]["gsm8k"]:
        prompt = sample["arguments"]["gen_args_0"]["arg_0"] if isinstance(sample["arguments"], dict) \
            else sample["arguments"][0][0]
        row = rows.setdefault(sample["doc_id"], {"prompt": prompt, "ids": model.prompts[prompt],
                                                 "text": sample["resps"][0][0], "answers": {}})
        row["answers"][sample["filter"]] = {"answer": sample["filtered_resps"][0],
                                            "exact_match": sample["exact_match"]}
    scores = {key: value for key, value in results["results"]["gsm8k"].items()
              if key.startswith("exact_match,")}
    return {"shots": shots, "stops": stop, "filters": WORD_FILTERS if words else None, "scores": scores, "rows": [rows[key] for key in sorted(rows)]}


def mmlu(model):
    config = config_of("mmlu_subject", "mmlu/default/mmlu_abstract_algebra.yaml",
                       {"dev": "mmlu/dev_subject.jsonl", "test": "mmlu/test_subject.jsonl"})
    results = lm_eval.simple_evaluate(model=model, tasks=[config], num_fewshot=5, log_samples=True,
                                      bootstrap_iters=0, task_manager=TaskManager(verbosity="ERROR"))
    rows = []
    for sample in sorted(results["samples"]["mmlu_subject"], key=lambda sample: sample["doc_id"]):
        arguments = sample["arguments"].values() if isinstance(sample["arguments"], dict) else sample["arguments"]
        texts = [list(a.values()) if isinstance(a, dict) else list(a) for a in arguments]
        rows.append({"context": texts[0][0], "continuations": [text[1] for text in texts],
                     "sums": [float(response[0][0]) for response in sample["resps"]]})
    return {"acc": results["results"]["mmlu_subject"]["acc,none"], "rows": rows}


def main():
    make_data()
    with tempfile.TemporaryDirectory() as folder:
        existing_model(folder)
        model = GeneratingModel(pretrained=folder, dtype="float32", device="cpu", batch_size=3,
                                max_length=make_golden.MAX_LENGTH, add_bos_token=True)
        golden = {"lm_eval": "0.4.13", "max_length": make_golden.MAX_LENGTH, "max_new_tokens": MAX_NEW_TOKENS,
                  "gsm8k": [gsm8k(model, 0, []), gsm8k(model, 2, []), gsm8k(model, 5, []),
                            gsm8k(model, 0, ["e", "th"])],
                  "mmlu": mmlu(model)}
        write_words(golden["gsm8k"][0]["rows"])
        golden["gsm8k"].append(gsm8k(model, 0, [], words=True))
    (HERE / "generation_golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


def write_words(rows):
    """The same questions, every other one with a word of the model's text as its reference, so that some are right."""
    lines = []
    for i, (line, row) in enumerate(zip((HERE / "data/gsm8k/test.jsonl").read_text().splitlines(), rows)):
        words = re.findall("[a-z]{3,}", row["text"])
        # Upper case and a full stop, which exact_match leaves out.
        answer = f"Because.\n#### {words[-1 if i % 4 else 0].capitalize()}." if i % 2 == 0 and words else "#### none"
        lines.append(json.dumps({**json.loads(line), "answer": answer}) + "\n")
    (HERE / "data/gsm8k/words.jsonl").write_text("".join(lines))


def make_data():
    """Made-up rows in the layouts of GSM8K and MMLU; MMLU's other subject must be left alone by the shots."""
    def write(name, rows):
        path = HERE / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def sum_row(i):
        first, second = 3 + 2 * i, 1200 + i
        return {"question": f"Ann has {first} pears and gets {second} more. How many has she now?",
                "answer": f"She has {first} + {second} = <<{first}+{second}={first + second}>>{first + second:,}."
                          f"\n#### {first + second:,}"}

    write("gsm8k/train.jsonl", [sum_row(i) for i in range(9)])
    write("gsm8k/test.jsonl", [sum_row(i) for i in range(20, 28)])

    def choice_row(i, subject):
        return {"question": f" What is {i} plus {i + 1}? ", "subject": subject,
                "choices": [str(2 * i), str(2 * i + 1), str(2 * i + 2), str(3 * i + 5)], "answer": (i * 7) % 4}

    dev = {name: [choice_row(i + offset, name) for i in range(5)] for name, offset in
           [("anatomy", 40), (SUBJECT, 3)]}
    test = [choice_row(i, SUBJECT) for i in range(60, 72)]
    write("mmlu/dev_subject.jsonl", dev[SUBJECT])
    write("mmlu/test_subject.jsonl", test)
    write("mmlu/dev.jsonl", dev["anatomy"] + dev[SUBJECT])
    write("mmlu/test.jsonl", test)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
