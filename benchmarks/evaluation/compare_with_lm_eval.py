"""Items per second of smoe-eval against lm-evaluation-harness: the same dense weights, tasks, rows and threads on one CPU.

Set-up (in a virtual environment outside the source tree):
    pip install torch==2.11.0 lm-eval==0.4.13 transformers accelerate sentencepiece protobuf tiktoken
Run:
    python compare_with_lm_eval.py --smoe-eval build/release/bin/smoe-eval --data examples/benchmarks

A random Llama with a SentencePiece vocabulary is saved as a Hugging Face folder and as a checkpoint of ours. Both programs
then score each task in turn, several times, in changing order. What is timed: for the harness `simple_evaluate` with the model
already loaded; for smoe-eval the whole process with start, loading, scoring and writing of results. Ratios therefore err in
favour of the harness. It gets the fastest of the batch sizes that are named; smoe-eval has its default.

Prints a table, and one JSON line a task (also to --out). Scores of both are printed too: they must agree.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = tempfile.mkdtemp(prefix="lm-eval-cache-")
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=CACHE, TOKENIZERS_PARALLELISM="false")

sys.path.insert(0, str(ROOT / "tests/golden/eval"))

# Per task: the harness's file, our data files by split, and the metric that both print.
TASKS = {
    "arc_easy": ("arc/arc_easy.yaml", {"test": "arc_easy/test.jsonl"}, "acc"),
    "arc_challenge": ("arc/arc_challenge.yaml", {"test": "arc_challenge/test.jsonl"}, "acc"),
    "piqa": ("piqa/piqa.yaml", {"validation": "piqa/validation.jsonl"}, "acc"),
    "hellaswag": ("hellaswag/hellaswag.yaml", {"validation": "hellaswag/validation.jsonl"}, "acc"),
    "winogrande": ("winogrande/default.yaml", {"validation": "winogrande/validation.jsonl"}, "acc"),
    "lambada_openai": ("lambada/lambada_openai.yaml", {"test": "lambada_openai/test.jsonl"}, "acc"),
    "mmlu": ("mmlu/default/mmlu_{subject}.yaml", {"test": "mmlu/test.jsonl", "dev": "mmlu/dev.jsonl"}, "acc"),
    "gsm8k_cot": ("gsm8k/gsm8k-cot.yaml", {"test": "gsm8k/test.jsonl"}, "exact_match,strict-match"),
}
EXTRA_FILES = {"gsm8k_cot": ["gsm8k/fewshot_cot_8shot.jsonl", "gsm8k/train.jsonl"]}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoe-eval", type=pathlib.Path, default=ROOT / "build/release/bin/smoe-eval")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "examples/benchmarks")
    parser.add_argument("--tasks", default="all", help="names separated by commas; all: those whose data is there")
    parser.add_argument("--limit", type=int, default=100, help="first rows of each task")
    parser.add_argument("--subjects", type=int, default=3, help="subjects of MMLU, each with its first LIMIT/SUBJECTS rows")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--batch-sizes", default="8,32", help="of the harness; the fastest counts (`auto` is possible)")
    parser.add_argument("--max-length", type=int, default=1024)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--smoe-options", default="", help="more options for smoe-eval")
    parser.add_argument("--out", type=pathlib.Path, help="file for the JSON lines")
    return parser.parse_args()


def train_tokenizer(path, vocab):
    import sentencepiece
    with tempfile.TemporaryDirectory() as folder:
        corpus = pathlib.Path(folder) / "corpus.txt"
        lines = [json.loads(line)["text"] for file in sorted((ROOT / "examples/corpus/train").glob("*.jsonl"))
                 for line in file.read_text().rstrip("\n").split("\n")[:150]]
        corpus.write_text("\n".join(lines))
        sentencepiece.SentencePieceTrainer.train(
            input=str(corpus), model_prefix=folder + "/tokenizer", vocab_size=vocab, model_type="bpe", byte_fallback=True,
            normalization_rule_name="identity", character_coverage=0.9995, num_threads=os.cpu_count(),
            remove_extra_whitespaces=False, max_sentence_length=100000, bos_id=1, eos_id=2, unk_id=0, minloglevel=2)
        shutil.copy(folder + "/tokenizer.model", path)


def make_models(arguments, theirs, ours):
    """The same random weights as a Hugging Face folder and as a checkpoint of ours."""
    import torch
    from safetensors.torch import save_file
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaTokenizer

    from make_golden import our_name
    ffn = (arguments.dim * 8 // 3 + 63) // 64 * 64
    heads = arguments.dim // 64
    theirs.mkdir(), ours.mkdir()
    train_tokenizer(ours / "tokenizer.model", arguments.vocab)
    torch.manual_seed(7)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=arguments.vocab, hidden_size=arguments.dim, intermediate_size=ffn, num_hidden_layers=arguments.layers,
        num_attention_heads=heads, num_key_value_heads=heads, head_dim=64, max_position_embeddings=arguments.max_length,
        rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=False,
        bos_token_id=1, eos_token_id=2)).float().eval()
    model.save_pretrained(theirs)
    shutil.copy(ours / "tokenizer.model", theirs)
    LlamaTokenizer.from_pretrained(theirs).save_pretrained(theirs)
    save_file({our_name(name): tensor.contiguous() for name, tensor in model.state_dict().items()},
              ours / "model.safetensors")
    (ours / "config.yaml").write_text(
        f"model: {{architecture: dense, vocab_size: {arguments.vocab}, dim: {arguments.dim}, num_heads: {heads}, "
        f"num_kv_heads: {heads}, head_dim: 64, num_dense_layers: {arguments.layers}, dense_ffn_dim: {ffn}, "
        "num_moe_layers: 0, tied_embeddings: false, qk_norm: false, rope_theta: 10000.0, norm_eps: 1.0e-5}\n"
        f"data: {{sequence_length: {arguments.max_length}}}\n")
    sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(ours.iterdir())}
    (ours / "checksums.json").write_text(json.dumps(sums))
    return sum(parameter.numel() for parameter in model.parameters())


def cut_data(task, arguments, folder):
    """The rows that are scored, as files for both; for MMLU the names of the subjects too."""
    _, files, _ = TASKS[task]
    subjects = []
    for relative in [*files.values(), *EXTRA_FILES.get(task, [])]:
        lines = (arguments.data / relative).read_text().rstrip("\n").split("\n")
        if task == "mmlu" and relative.endswith("test.jsonl"):
            rows = {}
            for line in lines:
                rows.setdefault(json.loads(line)["subject"], []).append(line)
            subjects = list(rows)[:arguments.subjects]
            lines = [line for name in subjects for line in rows[name][:arguments.limit // len(subjects)]]
        elif relative in files.values() and task != "mmlu":
            lines = lines[:arguments.limit]
        path = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    return subjects


def subject_files(folder, files, subject):
    """The rows of one subject of MMLU: the harness has a task for each."""
    result = {}
    for split, relative in files.items():
        name = subject.replace(" ", "_")
        path = folder / relative.replace(".jsonl", f"_{name}.jsonl")
        path.write_text("".join(line + "\n" for line in (folder / relative).read_text().rstrip("\n").split("\n")
                                if json.loads(line)["subject"] == subject))
        result[split] = str(path)
    return result


def harness_tasks(task, folder, subjects, arguments):
    import lm_eval
    from lm_eval.tasks._yaml_loader import load_yaml
    template, files, _ = TASKS[task]
    tasks = []
    for subject in subjects or [None]:
        name = f"{task}_{subject.replace(' ', '_')}" if subject else task
        path = template.format(subject=subject.replace(" ", "_") if subject else "")
        config = load_yaml(pathlib.Path(lm_eval.__file__).parent / "tasks" / path, resolve_func=True)
        config.pop("tag", None)
        local = subject_files(folder, files, subject) if subject else \
            {split: str(folder / relative) for split, relative in files.items()}
        config.update(task=name, dataset_path="json", dataset_name=None, dataset_kwargs={"data_files": local})
        for split in ["training_split", "validation_split"]:
            if split != "validation_split" or "validation" not in files:
                config[split] = None
        if "generation_kwargs" in config:
            config["generation_kwargs"]["max_gen_toks"] = arguments.max_new_tokens
        tasks.append(config)
    return tasks


class Harness:
    def __init__(self, folder, batch_size, arguments):
        from lm_eval.models.huggingface import HFLM
        batch_size = batch_size if batch_size == "auto" else int(batch_size)
        self.model = HFLM(pretrained=str(folder), dtype="float32", device="cpu", batch_size=batch_size,
                          max_length=arguments.max_length, add_bos_token=True)

    def score(self, task, configs, limit=None):
        """Seconds, and the metric averaged over rows."""
        import lm_eval
        from lm_eval.tasks import TaskManager
        manager = TaskManager(verbosity="ERROR")
        shots = 5 if task == "mmlu" else None
        start = time.perf_counter()
        with contextlib.redirect_stderr(io.StringIO()):
            results = lm_eval.simple_evaluate(model=self.model, tasks=[dict(config) for config in configs], num_fewshot=shots,
                                              limit=limit, bootstrap_iters=0, log_samples=False, task_manager=manager)
        seconds = time.perf_counter() - start
        metric = TASKS[task][2]
        key = metric if "," in metric else metric + ",none"
        rows = [(results["n-samples"][name]["effective"], scores[key]) for name, scores in results["results"].items()]
        return seconds, sum(n * score for n, score in rows) / sum(n for n, _ in rows)


def score_with_smoe(task, checkpoint, data, folder, arguments):
    out = folder / "results.json"
    command = [str(arguments.smoe_eval), "--checkpoint", str(checkpoint), "--data", str(data), "--tasks", task, "--out",
               str(out), "--threads", str(arguments.threads), "--max-new-tokens", str(arguments.max_new_tokens),
               "--restart", *arguments.smoe_options.split()]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    result = json.loads(out.read_text())["tasks"][task]
    score = next(iter(result["metrics"][TASKS[task][2]]["budgets"].values()))["value"]
    return seconds, score, result


def compare(task, harnesses, checkpoint, arguments, folder):
    data = folder / "data"
    subjects = cut_data(task, arguments, data)
    configs = harness_tasks(task, data, subjects, arguments)
    for harness in harnesses.values():
        harness.score(task, configs, limit=2)  # reads and caches the data
    theirs = {size: [] for size in harnesses}
    ours = []
    for repetition in range(arguments.repetitions):
        turns = [*harnesses, None]
        for size in turns if repetition % 2 == 0 else reversed(turns):
            if size is None:
                seconds, our_score, result = score_with_smoe(task, checkpoint, data, folder, arguments)
                ours.append(seconds)
            else:
                seconds, their_score = harnesses[size].score(task, configs)
                theirs[size].append(seconds)
    best = min(theirs, key=lambda size: statistics.median(theirs[size]))
    rows = result["rows"]
    line = {"task": task, "rows": rows, "num_fewshot": result["num_fewshot"], "harness_batch_size": best,
            "harness_s": theirs[best], "smoe_s": ours, "smoe_scoring_s": result["seconds"],
            "harness_items_per_s": rows / statistics.median(theirs[best]), "smoe_items_per_s": rows / statistics.median(ours),
            "ratio": statistics.median(theirs[best]) / statistics.median(ours),
            "ratio_of_fastest": min(theirs[best]) / min(ours), "harness_score": their_score, "smoe_score": our_score,
            "shared_prefixes": result.get("shared_prefixes")}
    print(f"{task:16} {rows:5} rows {result['num_fewshot']:2} shots   harness {line['harness_items_per_s']:8.2f} items/s "
          f"(batch {best})   smoe {line['smoe_items_per_s']:8.2f} items/s   ratio {line['ratio']:6.2f}   "
          f"scores {their_score:.4f} {our_score:.4f}", flush=True)
    return line


def main():
    arguments = parse_arguments()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    import torch
    torch.set_num_threads(arguments.threads)
    there = [name for name, (_, files, _) in TASKS.items()
             if all((arguments.data / file).exists() for file in [*files.values(), *EXTRA_FILES.get(name, [])])]
    names = there if arguments.tasks == "all" else arguments.tasks.split(",")
    if missing := [name for name in names if name not in there]:
        sys.exit(f"no data below {arguments.data} for {', '.join(missing)}; there is data for {', '.join(there)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        parameters = make_models(arguments, folder / "theirs", folder / "ours")
        print(f"dense model of {parameters / 1e6:.1f} M parameters, float32, {arguments.threads} threads, "
              f"{arguments.repetitions} repetitions, medians of seconds", flush=True)
        harnesses = {size: Harness(folder / "theirs", size, arguments) for size in arguments.batch_sizes.split(",")}
        lines = [compare(name, harnesses, folder / "ours", arguments, folder) for name in names]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    print(text, end="")
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    try:
        main()
    finally:
        shutil.rmtree(CACHE, ignore_errors=True)
