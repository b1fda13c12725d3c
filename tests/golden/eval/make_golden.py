"""Writes the golden files of the evaluation area with the real lm-evaluation-harness, run offline on the CPU.

Set-up (in a virtual environment outside the source tree):
    pip install torch==2.11.0 lm-eval==0.4.13 transformers accelerate sentencepiece protobuf tiktoken
Run in this folder:
    python make_golden.py

It makes a tiny random Llama with a small SentencePiece vocabulary, saves it as a Hugging Face folder for the harness (in
a temporary folder) and as a checkpoint of ours (tiny_llama/), runs the harness's own task definitions on the items of
examples/benchmarks and data/, and stores prompts, token ids, per-choice sums and scores in golden.json.
"""

import hashlib
import json
import os
import pathlib
import shutil
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import lm_eval
import sentencepiece
import torch
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, LlamaTokenizer

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parents[2] / "examples"
CHECKPOINT = HERE / "tiny_llama"
MAX_LENGTH = 256
VOCAB = 384

CONFIG_YAML = f"""\
# Written by make_golden.py.
model:
  architecture: dense
  vocab_size: {VOCAB}
  dim: 32
  num_heads: 4
  num_kv_heads: 2
  head_dim: 8
  num_dense_layers: 2
  dense_ffn_dim: 64
  num_moe_layers: 0
  tied_embeddings: false
  qk_norm: false
  rope_theta: 10000.0
  norm_eps: 1.0e-5
data:
  sequence_length: {MAX_LENGTH}
"""

# Data files of each task by split, and the runs: shots, rows, whether BOS stands before each text.
TASKS = {
    "lambada_openai": {"test": "lambada_openai/test.jsonl"},
    "arc_easy": {"test": "arc_easy/test.jsonl", "validation": "arc_easy/test.jsonl", "train": "arc_easy/train.jsonl"},
    "arc_challenge": {"test": "arc_challenge/test.jsonl", "validation": "arc_challenge/test.jsonl",
                      "train": "arc_challenge/train.jsonl"},
    "hellaswag": {"validation": "hellaswag/validation.jsonl"},
    "winogrande": {"validation": "winogrande/validation.jsonl", "train": "winogrande/train_xl.jsonl"},
    "piqa": {"validation": "piqa/validation.jsonl", "train": "piqa/train.jsonl"},
    "sciq": {"test": "sciq/test.jsonl", "validation": "sciq/test.jsonl", "train": "sciq/test.jsonl"},
}
RUNS = [(task, 0, 20, True) for task in TASKS]
RUNS += [("arc_easy", 0, 10, False), ("lambada_openai", 0, 10, False)]
RUNS += [("arc_easy", 3, 8, True), ("winogrande", 5, 8, True), ("piqa", 2, 8, True), ("lambada_openai", 1, 6, True)]


def train_tokenizer(path):
    with tempfile.TemporaryDirectory() as folder:
        corpus = pathlib.Path(folder) / "corpus.txt"
        lines = (EXAMPLES / "corpus/train/stories.jsonl").read_text().splitlines()[:40]
        corpus.write_text("\n".join(json.loads(line)["text"] for line in lines))
        sentencepiece.SentencePieceTrainer.train(
            input=str(corpus), model_prefix=folder + "/tokenizer", vocab_size=VOCAB, model_type="bpe",
            byte_fallback=True, normalization_rule_name="identity", character_coverage=0.99, num_threads=1,
            remove_extra_whitespaces=False, bos_id=1, eos_id=2, unk_id=0, minloglevel=2)
        shutil.copy(folder + "/tokenizer.model", path)


def make_model(folder):
    torch.manual_seed(7)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=MAX_LENGTH, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=False, bos_token_id=1,
        eos_token_id=2)).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Large weights: a default initialisation gives almost the same score to everything.
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0.0, 0.3)
    model.save_pretrained(folder)
    shutil.copy(CHECKPOINT / "tokenizer.model", folder)
    LlamaTokenizer.from_pretrained(folder).save_pretrained(folder)
    return model


def our_name(name):
    for theirs, ours in [("model.", ""), ("embed_tokens", "token_embedding"), ("input_layernorm", "attention_norm"),
                         ("post_attention_layernorm", "ffn_norm"), ("self_attn", "attention"),
                         ("mlp", "feed_forward"), ("lm_head", "output")]:
        name = name.replace(theirs, ours)
    return "final_norm.weight" if name == "norm.weight" else name


def write_checkpoint(model):
    save_file({our_name(name): tensor.contiguous() for name, tensor in model.state_dict().items()},
              CHECKPOINT / "model.safetensors")
    (CHECKPOINT / "config.yaml").write_text(CONFIG_YAML)
    sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(CHECKPOINT.iterdir()) if file.name != "checksums.json"}
    (CHECKPOINT / "checksums.json").write_text(json.dumps(sums, indent=2) + "\n")


class RecordingModel(HFLM):
    """Remembers the token ids of every request."""

    def _loglikelihood_tokens(self, requests, **arguments):
        self.ids = getattr(self, "ids", {})
        self.windows = getattr(self, "windows", [])
        for texts, context, continuation in requests:
            if texts is None:
                self.windows.append([list(context), list(continuation)])
            else:
                self.ids[tuple(texts)] = (list(context), list(continuation))
        return super()._loglikelihood_tokens(requests, **arguments)


def harness_task(name, files):
    """The harness's own definition of a task, with local data files."""
    from lm_eval.tasks._yaml_loader import load_yaml
    path = next(pathlib.Path(lm_eval.__file__).parent.glob(f"tasks/*/{name}.yaml"), None)
    if path is None:
        path = pathlib.Path(lm_eval.__file__).parent / "tasks/winogrande/default.yaml"
    config = load_yaml(path, resolve_func=True)
    config.pop("tag", None)
    config.update(task=name, dataset_path="json", dataset_name=None, dataset_kwargs={"data_files": files})
    if "train" not in files:
        config["training_split"] = None
    return config


def data_file(relative):
    local = HERE / "data" / relative
    return str(local if local.exists() else EXAMPLES / "benchmarks" / relative)


def run(model, task, shots, limit, bos):
    files = {split: data_file(relative) for split, relative in TASKS[task].items()}
    results = lm_eval.simple_evaluate(model=model, tasks=[harness_task(task, files)], num_fewshot=shots, limit=limit,
                                      log_samples=True, bootstrap_iters=0, task_manager=TaskManager(verbosity="ERROR"))
    rows = []
    for sample in sorted(results["samples"][task], key=lambda sample: sample["doc_id"]):
        pairs = []
        for arguments, (response,) in zip(sample["arguments"].values() if isinstance(sample["arguments"], dict)
                                          else sample["arguments"], sample["resps"]):
            texts = tuple(arguments.values()) if isinstance(arguments, dict) else tuple(arguments)
            context, continuation = model.ids[texts]
            pairs.append({"context": texts[0], "continuation": texts[1], "context_ids": context,
                          "continuation_ids": continuation, "sum": float(response[0]), "greedy": bool(response[1])})
        if len({pair["context"] for pair in pairs}) == 1:  # the choices of a row share it: store it once
            for pair in pairs[1:]:
                del pair["context"], pair["context_ids"]
        rows.append(pairs)
    scores = {key.split(",")[0]: value for key, value in results["results"][task].items()
              if key.endswith(",none") and "stderr" not in key}
    return {"task": task, "shots": shots, "bos": bos, "scores": scores, "rows": rows}


def run_text(model):
    """Rolling windows. Without added BOS: the harness would put it there twice."""
    file = EXAMPLES / "corpus/validation/stories.jsonl"
    with tempfile.TemporaryDirectory() as folder:
        short = pathlib.Path(folder) / "text.jsonl"
        texts = [json.loads(line)["text"][:length] for line, length in
                 zip(file.read_text().splitlines(), [900, 60, 2000, 1500])]
        (HERE / "data/text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        shutil.copy(HERE / "data/text.jsonl", short)
        config = {"task": "text", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(short)}},
                  "output_type": "loglikelihood_rolling", "test_split": "test", "doc_to_text": "",
                  "doc_to_target": "{{text}}", "metric_list": [{"metric": "word_perplexity"},
                                                               {"metric": "byte_perplexity"},
                                                               {"metric": "bits_per_byte"}]}
        results = lm_eval.simple_evaluate(model=model, tasks=[config], bootstrap_iters=0, log_samples=True,
                                          task_manager=TaskManager(verbosity="ERROR"))
    scores = {key.split(",")[0]: value for key, value in results["results"]["text"].items()
              if key.endswith(",none") and "stderr" not in key}
    sums = [float(sample["resps"][0][0]) for sample in
            sorted(results["samples"]["text"], key=lambda sample: sample["doc_id"])]
    return {"scores": scores, "sums": sums, "windows": model.windows}


def main():
    shutil.rmtree(CHECKPOINT, ignore_errors=True)
    CHECKPOINT.mkdir()
    train_tokenizer(CHECKPOINT / "tokenizer.model")
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(make_model(folder))
        models = {bos: RecordingModel(pretrained=folder, dtype="float32", device="cpu", batch_size=4,
                                      max_length=MAX_LENGTH, add_bos_token=bos)
                  for bos in (True, False)}
        golden = {"lm_eval": "0.4.13", "max_length": MAX_LENGTH,
                  "runs": [run(models[bos], task, shots, limit, bos) for task, shots, limit, bos in RUNS],
                  "text": run_text(models[False])}
    (HERE / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
