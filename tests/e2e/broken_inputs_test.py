#!/usr/bin/env python3
"""Feeds the real tools broken configs, data and checkpoints, one at a time.

Every case must end with one clear error: a non-zero exit code of the right kind, a message that names the
place and the remedy's key facts, no crash, and nothing written over what was there.

Usage: broken_inputs_test.py BIN_FOLDER (exit 0 if every case behaves).
"""
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()
OTHER_ERROR, CONFIG_ERROR, DATA_ERROR, CHECKPOINT_ERROR = 1, 2, 3, 4

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
  sequence_length: 32
run_folder: run
num_threads: 1
steps: 2
batch_size: 2
micro_batch_size: 2
schedule: {warmup_steps: 1}
checkpoint: {every_steps: 1, keep_last: 2}
"""


def run(folder, *command):
    return subprocess.run([BIN / command[0], *command[1:]], cwd=folder, capture_output=True, text=True, timeout=120)


def prepare(folder):
    """A tokenizer, a token store, a config and a trained run of two steps."""
    words = ["stone", "river", "light", "seven", "under", "garden", "paper", "winter", "copper", "letter"]
    with open(folder / "text.jsonl", "w") as out:
        for index in range(200):
            text = " ".join(words[(index * k + k) % len(words)] for k in range(1, 30))
            out.write(json.dumps({"text": text}) + "\n")
    for command in (
        ["smoe-data", "train-tokenizer", "--input", "text.jsonl", "--vocab-size", "300", "--out", "tokenizer.model"],
        ["smoe-data", "tokenize", "--input", "text.jsonl", "--tokenizer", "tokenizer.model", "--out", "tokens"],
    ):
        done = run(folder, *command)
        assert done.returncode == 0, done.stderr
    (folder / "config.yaml").write_text(CONFIG)
    done = run(folder, "smoe-train", "config.yaml")
    assert done.returncode == 0, done.stderr


def train_with(replace, by):
    def change(folder):
        text = CONFIG.replace(replace, by).replace("run_folder: run", "run_folder: other")
        (folder / "config.yaml").write_text(text)
        return ["smoe-train", "config.yaml"]
    return change


def flip_byte(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)


def checkpoint(folder):
    return sorted((folder / "run" / "checkpoints").glob("step-*"))[-1]


def broken_store(edit):
    def change(folder):
        edit(folder)
        return ["smoe-train", "config.yaml", "--set", "run_folder=other"]
    return change


def inspect_checkpoint(edit):
    def change(folder):
        edit(checkpoint(folder))
        return ["smoe-inspect", "checkpoint", str(checkpoint(folder))]
    return change


def tokenize_text(text):
    def change(folder):
        (folder / "broken.jsonl").write_bytes(text)
        return ["smoe-data", "tokenize", "--input", "broken.jsonl", "--tokenizer", "tokenizer.model", "--out", "new"]
    return change


def truncate(path, size):
    with open(path, "r+b") as file:
        file.truncate(size)


def misshape(folder):
    """Gives a tensor another shape in the header, and fixes the checksum so that only the shape is wrong."""
    import hashlib
    path = folder / "model.safetensors"
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = data[8:8 + length]
    changed = header.replace(b'"final_norm.weight":{"dtype":"F32","shape":[32]', b'"final_norm.weight":{"dtype":"F32","shape":[4,8]')
    assert changed != header
    changed = changed.rstrip(b" ")
    changed += b" " * (-len(changed) % 8)
    path.write_bytes(struct.pack("<Q", len(changed)) + changed + data[8 + length:])
    sums = json.loads((folder / "checksums.json").read_text())
    sums["model.safetensors"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "checksums.json").write_text(json.dumps(sums))


def resume_with(option, value):
    return lambda folder: ["smoe-train", "config.yaml", "--resume", "--set", f"{option}={value}"]


def evaluate_into(path):
    return lambda folder: ["smoe-eval", "--checkpoint", "run", "--text", "text.jsonl", "--out", path]


def generate_with(*options):
    return lambda folder: ["smoe-generate", "--checkpoint", "run", "--budget", "small", "--max-new-tokens", "2", *options]


def missing_weights(folder):
    (checkpoint(folder) / "model.safetensors").unlink()
    return ["smoe-train", "config.yaml", "--resume"]


def as_dry_run(change):
    def dry_change(folder):
        command = change(folder)
        return [*command, "--dry-run"] if command[0] == "smoe-train" else None
    return dry_change


# (name, what makes the input broken and the command to run, exit code, words the message must hold)
CASES = [
    ("unknown key", train_with("steps: 2", "stepz: 2"), CONFIG_ERROR, ["config.yaml:", "stepz", "steps"]),
    ("duplicate key", train_with("steps: 2", "steps: 2\nsteps: 3"), CONFIG_ERROR, ["config.yaml:", "steps"]),
    ("wrong type", train_with("steps: 2", "steps: many"), CONFIG_ERROR, ["config.yaml:", "steps", "many"]),
    ("out of range", train_with("steps: 2", "steps: 0"), CONFIG_ERROR, ["config.yaml:", "steps", "1"]),
    ("unknown word", train_with("stepped_moe", "steped_moe"), CONFIG_ERROR, ["architecture", "stepped_moe", "vanilla_moe"]),
    ("syntax", train_with("steps: 2", "steps: [2"), CONFIG_ERROR, ["config.yaml:"]),
    ("heads do not divide", train_with("num_kv_heads: 2", "num_kv_heads: 3"), CONFIG_ERROR, ["num_heads", "num_kv_heads"]),
    ("budget above experts", train_with("experts_per_layer: 4", "experts_per_layer: 9"), CONFIG_ERROR, ["experts_per_layer", "num_experts"]),
    ("missing include", train_with("model:", "include: nowhere.yaml\nmodel:"), CONFIG_ERROR, ["nowhere.yaml"]),
    ("missing config", lambda folder: ["smoe-train", "nothing.yaml"], CONFIG_ERROR, ["nothing.yaml"]),
    ("unknown option", lambda folder: ["smoe-train", "config.yaml", "--resum"], CONFIG_ERROR, ["--resum"]),
    ("value that is no number", lambda folder: ["smoe-eval", "--checkpoint", "run", "--limit", "many"], CONFIG_ERROR, ["--limit", "many"]),
    ("bad override", lambda folder: ["smoe-train", "config.yaml", "--set", "optimizer.learning_rat=1"], CONFIG_ERROR, ["learning_rat", "learning_rate"]),
    ("missing tokenizer", train_with("tokenizer.model", "nothing.model"), DATA_ERROR, ["nothing.model"]),
    ("missing store", train_with("path: tokens", "path: nothing"), DATA_ERROR, ["nothing"]),
    ("truncated index", broken_store(lambda folder: truncate(folder / "tokens.idx", 20)), DATA_ERROR, ["tokens.idx"]),
    ("foreign index", broken_store(lambda folder: flip_byte(folder / "tokens.idx", 0)), DATA_ERROR, ["tokens.idx"]),
    ("truncated tokens", broken_store(lambda folder: truncate(folder / "tokens.bin", 100)), DATA_ERROR, ["tokens.bin"]),
    ("vocabulary too small", train_with("vocab_size: 300", "vocab_size: 100"), DATA_ERROR, ["300", "100"]),
    ("bad json line", tokenize_text(b'{"text": "fine"}\n{"text": \n'), DATA_ERROR, ["broken.jsonl:2"]),
    ("missing field", tokenize_text(b'{"content": "x"}\n'), DATA_ERROR, ["broken.jsonl:1", "text"]),
    ("invalid utf-8", tokenize_text(b'{"text": "\xff\xfe"}\n'), DATA_ERROR, ["broken.jsonl:1"]),
    ("altered weights", inspect_checkpoint(lambda folder: flip_byte(folder / "model.safetensors", -5)), CHECKPOINT_ERROR, ["model.safetensors"]),
    ("truncated weights", inspect_checkpoint(lambda folder: truncate(folder / "model.safetensors", 1000)), CHECKPOINT_ERROR, ["model.safetensors"]),
    ("missing file", inspect_checkpoint(lambda folder: (folder / "config.yaml").unlink()), CHECKPOINT_ERROR, ["config.yaml"]),
    ("misshapen tensor", lambda folder: (misshape(checkpoint(folder)), ["smoe-train", "config.yaml", "--resume", "--set", "steps=3"])[1], CHECKPOINT_ERROR, ["final_norm.weight"]),
    ("damaged newest checkpoint", missing_weights, CHECKPOINT_ERROR, ["model.safetensors", "previous"]),
    ("no checkpoint", lambda folder: ["smoe-inspect", "checkpoint", "nowhere"], CHECKPOINT_ERROR, ["nowhere"]),
    ("unwritable results", evaluate_into("/proc/results.json"), OTHER_ERROR, ["/proc/results.json", "cannot write"]),
    ("results in a file's place", evaluate_into("config.yaml/results.json"), OTHER_ERROR, ["config.yaml: cannot make the folder"]),
    ("results under the table's name", evaluate_into("results.md"), CONFIG_ERROR, ["--out results.md", "results.json"]),
    ("system message for a plain text", generate_with("--prompt", "x", "--system", "Be kind."), CONFIG_ERROR, ["--system", "--chat"]),
    ("template for a plain text", generate_with("--prompt", "x", "--template", "t.yaml"), CONFIG_ERROR, ["--template", "--chat"]),
    ("prompt in another encoding", generate_with("--json", "--prompt", b"caf\xe9"), DATA_ERROR, ["--prompt", "byte 4", "0xE9"]),
    ("tokenizer of another name", lambda folder: ["smoe-data", "train-tokenizer", "--input", "text.jsonl", "--vocab-size", "300", "--out", "tokenizer.bin"], CONFIG_ERROR, ["tokenizer.bin", ".model"]),
    ("run folder in use", lambda folder: ["smoe-train", "config.yaml"], CONFIG_ERROR, ["run", "--resume"]),
    ("other data on resume", resume_with("data.seed", "9"), CHECKPOINT_ERROR, ["seed"]),
    ("other model on resume", resume_with("model.num_experts", "16"), CHECKPOINT_ERROR, ["num_experts"]),
]


def main():
    # A dry run must find whatever a run would find.
    cases = [*CASES, *((f"{title}, dry run", as_dry_run(change), code, words) for title, change, code, words in CASES)]
    failures = []
    skipped = 0
    with tempfile.TemporaryDirectory() as name:
        template = pathlib.Path(name) / "template"
        template.mkdir()
        prepare(template)
        for index, (title, change, code, words) in enumerate(cases):
            folder = pathlib.Path(name) / f"case-{index}"
            shutil.copytree(template, folder)
            command = change(folder)
            if command is None:
                skipped += 1
                continue
            done = run(folder, *command)
            message = done.stderr + done.stdout
            missing = [word for word in words if word not in message]
            good = done.returncode == code and not missing and message.count("error:") == 1
            print(f"{'ok    ' if good else 'FAILED'} {title}: exit {done.returncode}")
            if not good:
                failures.append(title)
                print(f"       expected exit {code} and the words {words}; missing {missing}\n{message}")
    total = len(cases) - skipped
    print(f"{total - len(failures)} of {total} cases end with one clear error")
    sys.exit(1 if failures else 0)


main()
