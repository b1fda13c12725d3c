"""Writes task_golden.json with the real lm-evaluation-harness: HumanEval, IFEval, MATH, TriviaQA, WikiText, and tasks
with a chat template.

Set-up as for make_golden.py, and besides:
    pip install langdetect immutabledict nltk math_verify antlr4-python3-runtime==4.11
Run in this folder after make_golden.py and make_generation_golden.py:
    python make_task_golden.py

The rows are made up (data/); prompts, shots, stops, filters, checkers and metrics are the harness's own. Only the number
of new tokens is lower than the tasks', because the model sees 256 tokens. Chat templates, code and WikiText run with a
byte-level tokenizer (tags/): SentencePiece drops the space before an answer, and transformers encodes the space at the
beginning of a text in another way than SentencePiece itself.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import evaluate
import lm_eval
import nltk
import tokenizers
from lm_eval.tasks import TaskManager
from transformers import PreTrainedTokenizerFast

import make_generation_golden
import make_golden

HERE = pathlib.Path(__file__).resolve().parent
MAX_NEW_TOKENS = 48
TAGS = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
CHAT_YAML = """\
# One token for each role, and no white space: what lm-evaluation-harness scores of a chat is then the answer alone.
name: tags
bos: never
system: {prefix: "<|system|>", suffix: "<|end|>"}
user: {prefix: "<|user|>", suffix: "<|end|>"}
assistant:
  prefix: "<|assistant|>"
  end: "<|end|>"
  end_with_eos: false
  suffix: ""
special_tokens: ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
"""
CHAT_JINJA = ("{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
              "{% if add_generation_prompt %}<|assistant|>{% endif %}")

nltk.data.find = lambda *args, **kwargs: None  # the harness would download Punkt; no row here needs it


class CodeEval:
    """Stands in for the metric code_eval of the hub: the same program text, run by the same language."""

    def compute(self, references, predictions, k):
        passed = []
        for test, candidates in zip(references, predictions):
            runs = [subprocess.run([sys.executable, "-c", candidate + "\n" + test], capture_output=True, timeout=60)
                    for candidate in candidates]
            passed += [run.returncode == 0 for run in runs]
        return {f"pass@{one}": sum(passed) / len(passed) for one in k}, {}


evaluate.load = lambda name, *args, **kwargs: CodeEval()


class TagsModel(make_golden.RecordingModel):
    """Remembers the ids of prompts and of pairs."""

    def tok_batch_encode(self, strings, *args, **kwargs):
        encoded = super().tok_batch_encode(strings, *args, **kwargs)
        self.prompts = getattr(self, "prompts", {})
        for text, ids, mask in zip(strings, *encoded):
            self.prompts[text] = ids[mask.bool()].tolist()
        return encoded


def write_tags():
    folder = HERE / "tags"
    folder.mkdir(exist_ok=True)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=make_golden.VOCAB, special_tokens=TAGS, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    lines = (make_golden.EXAMPLES / "corpus/train/stories.jsonl").read_text().splitlines()[:40]
    tokenizer.train_from_iterator((json.loads(line)["text"] for line in lines), trainer)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}) + "\n")
    (folder / "chat_template.yaml").write_text(CHAT_YAML)


def tags_tokenizer():
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(HERE / "tags/tokenizer.json"), eos_token="<|end|>",
                                        pad_token="<|end|>", additional_special_tokens=TAGS[1:])
    tokenizer.chat_template = CHAT_JINJA
    return tokenizer


def write_rows(name, rows):
    path = HERE / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def texts_of(sample):
    arguments = sample["arguments"]
    arguments = arguments.values() if isinstance(arguments, dict) else arguments
    return [list(a.values()) if isinstance(a, dict) else list(a) for a in arguments]


def run_harness(model, config, **options):
    if "generation_kwargs" in config:
        config["generation_kwargs"]["max_gen_toks"] = MAX_NEW_TOKENS
    results = lm_eval.simple_evaluate(model=model, tasks=[config], log_samples=True, bootstrap_iters=0,
                                      confirm_run_unsafe_code=True, task_manager=TaskManager(verbosity="ERROR"),
                                      **options)
    task = config["task"]
    samples = {}
    for sample in results["samples"][task]:
        samples.setdefault(sample["doc_id"], sample)
    scores = {key: value for key, value in results["results"][task].items()
              if isinstance(value, float) and "stderr" not in key}
    return [samples[key] for key in sorted(samples)], scores


def generated(model, task, path, files, shots=0, value=None, **options):
    config = make_generation_golden.config_of(task, path, files)
    samples, scores = run_harness(model, config, num_fewshot=shots, **options)
    rows = []
    for sample in samples:
        prompt = texts_of(sample)[0][0]
        rows.append({"prompt": prompt, "ids": model.prompts[prompt], "text": sample["resps"][0][0]})
        if value is not None:
            rows[-1]["value"] = sample[value]
    return {"shots": shots, "scores": scores, "rows": rows}


def likelihood(model, task, shots, limit, **options):
    files = {split: make_golden.data_file(file) for split, file in make_golden.TASKS[task].items()}
    samples, scores = run_harness(model, make_golden.harness_task(task, files), num_fewshot=shots, limit=limit, **options)
    rows = []
    for sample in samples:
        row = []
        for texts, (response,) in zip(texts_of(sample), sample["resps"]):
            context, continuation = model.ids[tuple(texts)]
            row.append({"context_ids": context, "continuation_ids": continuation, "sum": float(response[0])})
        if all(pair["context_ids"] == row[0]["context_ids"] for pair in row):
            for pair in row[1:]:
                del pair["context_ids"]
        rows.append(row)
    return {"task": task, "shots": shots, "layout": "turns" if options["fewshot_as_multiturn"] else "message",
            "system_prompt": options.get("system_instruction", ""),
            "scores": {key.split(",")[0]: value for key, value in scores.items()}, "rows": rows}


def humaneval(model):
    """Half of the programs pass whatever the model writes: it writes into a string that the test ends."""
    def row(name, value, right):
        return {"task_id": f"made-up/{name}", "entry_point": name,
                "prompt": f"def {name}(x):\n    \"\"\"Return {value} times x.\"\"\"\n    return {value} * x\n\nnote = r'''",
                "canonical_solution": "'''",
                "test": f"'''\ndef check(candidate):\n    assert candidate(2) == {2 * value if right else 0}\n"}
    write_rows("humaneval/HumanEval.jsonl", [row("double", 2, True), row("triple", 3, False), row("times_five", 5, True),
                                             row("times_seven", 7, False), row("times_nine", 9, True)])
    return generated(model, "humaneval", "humaneval/humaneval.yaml", {"test": "humaneval/HumanEval.jsonl"})


def ifeval(model):
    def row(key, instructions, kwargs):
        return {"key": key, "prompt": f"Write a few words about the number {key}.", "instruction_id_list": instructions,
                "kwargs": kwargs}
    write_rows("ifeval/input_data.jsonl", [
        row(1, ["punctuation:no_comma"], [{}]),
        row(2, ["length_constraints:number_words", "punctuation:no_comma"],
            [{"relation": "at least", "num_words": 3}, {}]),
        row(3, ["length_constraints:number_words"], [{"relation": "less than", "num_words": 3}]),
        row(4, ["keywords:existence", "detectable_format:title"], [{"keywords": ["the"]}, {}]),
        row(5, ["keywords:letter_frequency"], [{"letter": "e", "let_relation": "at least", "let_frequency": 2}]),
        row(6, ["keywords:forbidden_words", "startend:quotation"], [{"forbidden_words": ["zebra"]}, {}])])
    # The columns of a table exist in every row: what is null was not given.
    return generated(model, "ifeval", "ifeval/ifeval.yaml", {"train": "ifeval/input_data.jsonl"})


def minerva(model):
    from lm_eval.tasks.minerva_math import utils
    write_rows("math/fewshot_minerva_4shot.jsonl",
               [{key: shot[key] for key in ("problem", "solution")} for shot in utils.list_fewshot_samples()])
    # Without a final answer, which an untrained model never writes, the harness takes this one.
    write_rows("math/test.jsonl", [
        {"problem": f"What is {i} + {i}?", "level": "Level 1", "type": "Algebra",
         "solution": f"It is $\\boxed{{{'[invalidanswer]' if i % 3 == 0 else 2 * i}}}$."} for i in range(1, 7)])
    return {str(shots): generated(model, "minerva_math_algebra", "minerva_math/minerva_math_algebra.yaml",
                                  {"test": "math/test.jsonl", "train": "math/test.jsonl"}, shots, "exact_match")
            for shots in (0, 4)}


def triviaqa(model):
    def files():
        names = {}
        for split in ("train", "validation"):
            rows = [json.loads(line) for line in (HERE / f"data/triviaqa/{split}.jsonl").read_text().splitlines()]
            path = pathlib.Path(folder) / f"{split}.jsonl"
            path.write_text("".join(json.dumps({"question": row["question"], "answer": {"aliases": row["answer"]}}) + "\n"
                                    for row in rows))
            names[split] = str(path)
        return names

    questions = [{"question": f"Who lives in house number {i}?", "answer": [f"Mr {i}", "a man"]} for i in range(1, 9)]
    write_rows("triviaqa/train.jsonl", [{"question": f"Who made the {word}?", "answer": [f"the {word} maker", "a maker"]}
                                        for word in ("clock", "lamp", "boat", "coat", "bread", "chair")])
    write_rows("triviaqa/validation.jsonl", questions)
    with tempfile.TemporaryDirectory() as folder:
        first = generated(model, "triviaqa", "triviaqa/default.yaml", files(), 1)
        # Every other row gets the model's text as one of its aliases, with other case and punctuation.
        for i, (question, row) in enumerate(zip(questions, first["rows"])):
            if i % 2 == 0:
                question["answer"].append(row["text"].strip().upper() + "!")
        write_rows("triviaqa/validation.jsonl", questions)
        return [generated(model, "triviaqa", "triviaqa/default.yaml", files(), shots, "exact_match") for shots in (0, 1)]


def wikitext(model):
    write_rows("wikitext/test.jsonl", [
        {"page": " = The Old Mill = \n \n The mill , built in 1 @,@ 842 , had a two @-@ storey house ; it cost 3 @.@ 5 pounds "
                 ". \n \n = = History = = \n \n The miller 's son ( called \" Tom \" ) kept [ nearly ] all of it . \n"},
        {"page": " = Rain = \n \n It was 20 \u00b0 N of the line : nobody knew why ! Did they ? { They did } . \n " * 6}])
    config = make_generation_golden.config_of("wikitext", "wikitext/wikitext.yaml", {"test": "wikitext/test.jsonl"})
    config.pop("training_split")
    config.pop("validation_split")
    samples, scores = run_harness(model, config)
    return {"scores": {key.split(",")[0]: value for key, value in scores.items()},
            "sums": [float(sample["resps"][0][0]) for sample in samples]}


def main():
    write_tags()
    with tempfile.TemporaryDirectory() as folder:
        make_golden.make_model(folder)
        options = {"pretrained": folder, "dtype": "float32", "device": "cpu", "batch_size": 3,
                   "max_length": make_golden.MAX_LENGTH}
        sentencepiece = make_generation_golden.GeneratingModel(add_bos_token=True, **options)
        tags = TagsModel(tokenizer=tags_tokenizer(), **options)
        # The weights know the SentencePiece model's EOS.
        tags.model.generation_config.eos_token_id = tags.tokenizer.eos_token_id
        turns = {"apply_chat_template": True, "fewshot_as_multiturn": True}
        message = {"apply_chat_template": True, "fewshot_as_multiturn": False}
        gsm8k = ("gsm8k", "gsm8k/gsm8k.yaml", {"train": "gsm8k/train.jsonl", "test": "gsm8k/test.jsonl"})
        golden = {
            "lm_eval": "0.4.13", "max_length": make_golden.MAX_LENGTH, "max_new_tokens": MAX_NEW_TOKENS,
            "humaneval": humaneval(tags), "ifeval": ifeval(sentencepiece), "minerva_math": minerva(sentencepiece),
            "triviaqa": triviaqa(sentencepiece), "wikitext": wikitext(tags),
            "chat_likelihood": [likelihood(tags, "arc_easy", 0, 6, **turns),
                                likelihood(tags, "arc_easy", 2, 6, system_instruction="Answer briefly.", **turns),
                                likelihood(tags, "arc_easy", 2, 6, **message),
                                likelihood(tags, "winogrande", 1, 6, **turns),
                                likelihood(tags, "lambada_openai", 1, 4, **turns)],
            "chat_generation": [{**generated(tags, *gsm8k, shots, **how),
                                 "layout": "turns" if how is turns else "message"}
                                for shots, how in ((0, turns), (1, turns), (1, message))]}
    (HERE / "task_golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
