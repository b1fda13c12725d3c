#!/usr/bin/env python3
"""Loads what smoe-export writes with the real transformers: check_export.py BIN_FOLDER.

Every golden folder goes through smoe-import and smoe-export, dense checkpoints of ours through smoe-export; logits must
agree to 1e-4 with those of transformers, computed before and after, and with `smoe-inspect logits`. Tokenizers and chat
templates must give the ids that the golden files of their areas hold. Exits with 77, which ctest shows as skipped,
where torch or transformers is not installed.
"""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
try:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging
except ImportError as error:
    print(f"skipped: {error}; pip install torch transformers to check the export with them")
    sys.exit(77)

logging.disable_progress_bar()
logging.set_verbosity_error()
BIN = pathlib.Path(sys.argv[1])
HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent
TOKENIZERS = GOLDEN / "tokenizers"
LIMIT = 1e-4
failures = []


def run(tool, *arguments):
    result = subprocess.run([BIN / tool, *map(str, arguments)], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{tool} {' '.join(map(str, arguments))}\n{result.stdout}{result.stderr}")
    return result.stdout


def expect(name, holds, detail=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name} {detail}")
    if not holds:
        failures.append(name)


def logits_of(folder, tokens):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.tensor(tokens)).logits


def our_logits(checkpoint, token_file, out, budget=None):
    run("smoe-inspect", "logits", "--checkpoint", checkpoint, "--tokens", token_file, "--out", out,
        *(["--budget", budget] if budget else []))
    return load_file(out)["logits"]


def check_golden_folders(work):
    token_file = HERE / "tokens.json"
    tokens = json.loads(token_file.read_text())
    for source in sorted(path for path in HERE.iterdir() if path.is_dir() and (path / "config.json").exists()):
        model, out = work / source.name / "model", work / source.name / "out"
        model.parent.mkdir()
        run("smoe-import", "huggingface", source, model, "--tokenizer", TOKENIZERS / "sentencepiece_bpe.model")
        run("smoe-export", "huggingface", model, out, "--max-shard-size", "8KB")
        config = json.loads((source / "config.json").read_text())
        budget = str(config["num_experts_per_tok"]) if "num_experts_per_tok" in config else None
        expected = load_file(source / "expected.safetensors")["logits"]
        exported = (logits_of(out, tokens) - expected).abs().max().item()
        ours = (our_logits(model, token_file, work / "logits.safetensors", budget) - expected).abs().max().item()
        expect(source.name, exported == 0.0 and ours < LIMIT, f"exported {exported:.2g}, ours {ours:.2g}")


def check_own_checkpoint(work):
    checkpoint, token_file = GOLDEN / "reference_logits/dense", GOLDEN / "reference_logits/tokens.json"
    run("smoe-export", "huggingface", checkpoint, work / "dense", "--max-positions", 32)
    theirs = logits_of(work / "dense", json.loads(token_file.read_text()))
    ours = our_logits(checkpoint, token_file, work / "logits.safetensors")
    difference = (theirs - ours).abs().max().item()
    expect("own dense checkpoint", difference < LIMIT, f"{difference:.2g}")


def write_checkpoint(folder, tokenizer, chat, bos):
    """The own dense checkpoint with another tokenizer, which the weights do not matter for."""
    shutil.copytree(GOLDEN / "reference_logits/dense", folder)
    (folder / "expected.safetensors").unlink()
    shutil.copy(tokenizer, folder / ("tokenizer" + tokenizer.suffix))
    if bos:
        (folder / "special_tokens_map.json").write_text(json.dumps({"bos_token": bos, "eos_token": None}))
    if chat:
        shutil.copy(GOLDEN.parents[1] / "configs/chat_templates" / chat, folder / "chat_template.yaml")
    (folder / "checksums.json").unlink()
    sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
    (folder / "checksums.json").write_text(json.dumps(sums))


def check_chat_templates(work):
    golden = json.loads((GOLDEN / "chat_templates/expected.json").read_text())
    for name, tokenizer, bos in [("chatml", "qwen2", None), ("llama3", "llama3", "<|begin_of_text|>")]:
        write_checkpoint(work / name, TOKENIZERS / tokenizer / "tokenizer.json", name + ".yaml", bos)
        run("smoe-export", "huggingface", work / name, work / f"{name}-out", "--max-positions", 32)
        loaded = AutoTokenizer.from_pretrained(work / f"{name}-out")
        for index, dialogue in enumerate(golden[name]):
            text = loaded.apply_chat_template(dialogue["messages"][:-1], tokenize=False, add_generation_prompt=True)
            ids = loaded(text, add_special_tokens=False)["input_ids"]
            expect(f"{name} prompt {index}", ids == dialogue["prompt"])
            text = loaded.apply_chat_template(dialogue["messages"], tokenize=False)
            ids = loaded(text, add_special_tokens=False)["input_ids"]
            # Ours ends with the last answer; the public template goes on with what stands between messages.
            expect(f"{name} dialogue {index}", ids == dialogue["ids"][:len(ids)] and len(dialogue["ids"]) - len(ids) <= 1)


def check_tokenizers(work):
    for name in ["qwen2/tokenizer.json", "llama3/tokenizer.json", "olmo/tokenizer.json", "sentencepiece_bpe.model"]:
        label = name.split("/")[0].removesuffix(".model")
        golden = json.loads((TOKENIZERS / f"{label}_ids.json").read_text())
        folder, out = work / f"tokenizer-{label}", work / f"tokenizer-{label}-out"
        write_checkpoint(folder, TOKENIZERS / name, None, None)
        run("smoe-export", "huggingface", folder, out, "--max-positions", 32)
        loaded = AutoTokenizer.from_pretrained(out)
        # transformers reads the spelling of a special token as that token; SentencePiece's ids are those of plain text.
        special = [str(token) for token in loaded.added_tokens_decoder.values() if token.special]
        rows = [(row["text"], row.get("ids_with_special_tokens", row["ids"])) for row in golden
                if "ids_with_special_tokens" in row or not any(token in row["text"] for token in special)]
        wrong = [text for text, ids in rows if loaded(text, add_special_tokens=False)["input_ids"] != ids]
        expect(f"tokenizer {label}", not wrong, f"{len(wrong)} of {len(rows)} texts differ, first {wrong[:1]!r}")


def main():
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        check_golden_folders(work)
        check_own_checkpoint(work)
        check_chat_templates(work)
        check_tokenizers(work)
    sys.exit(f"{len(failures)} checks failed" if failures else 0)


main()
