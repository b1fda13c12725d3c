#!/usr/bin/env python3
"""Writes the golden files of the interchange area: tiny random models of transformers as folders, with the logits that
transformers computes for them.

    python3 -m venv /tmp/hf && /tmp/hf/bin/pip install torch==2.11.0 transformers==5.24.0
    /tmp/hf/bin/python tests/golden/interchange/make_golden.py

One folder a case: config.json and safetensors as save_pretrained writes them, and expected.safetensors with `logits`
[rows, tokens, V] in float32 for the rows of tokens.json.
"""
import json
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
VOCAB = 47
SHAPE = dict(vocab_size=VOCAB, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2,
             intermediate_size=24, max_position_embeddings=64, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2)
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}
EXPERTS = dict(num_experts_per_tok=2, moe_intermediate_size=12, num_experts=5)

# Class, arguments, and how the folder is saved.
CASES = {
    "llama_tied": ("Llama", {**SHAPE, **ROPE, "tie_word_embeddings": True}, {}),
    # A head width of its own, the untied head, several shards with an index.
    "llama_sharded": ("Llama", {**SHAPE, **ROPE, "head_dim": 6, "tie_word_embeddings": False},
                      {"max_shard_size": "6KB"}),
    "llama_bf16": ("Llama", {**SHAPE, **ROPE, "tie_word_embeddings": False}, {"dtype": torch.bfloat16}),
    "qwen3": ("Qwen3", {**SHAPE, **ROPE, "head_dim": 6, "tie_word_embeddings": True}, {}),
    "mixtral": ("Mixtral", {**SHAPE, **ROPE, "num_local_experts": 5, "num_experts_per_tok": 2}, {}),
    "qwen3_moe": ("Qwen3Moe", {**SHAPE, **ROPE, **EXPERTS, "num_hidden_layers": 3, "head_dim": 6,
                               "mlp_only_layers": [0], "norm_topk_prob": False}, {}),
    "qwen3_moe_normalized": ("Qwen3Moe", {**SHAPE, **ROPE, **EXPERTS, "head_dim": 6, "norm_topk_prob": True}, {}),
}


def make_model(kind, arguments, seed):
    torch.manual_seed(seed)
    config = getattr(transformers, kind + "Config")(**arguments)
    model = getattr(transformers, kind + "ForCausalLM")(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Larger than a usual start, so that a mistake in any part moves the logits visibly.
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0.0, 0.3)
    return model


def main():
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, VOCAB, (2, 12), generator=generator)
    (HERE / "tokens.json").write_text(json.dumps(tokens.tolist()) + "\n")
    for seed, (case, (kind, arguments, saving)) in enumerate(CASES.items()):
        folder = HERE / case
        shutil.rmtree(folder, ignore_errors=True)
        model = make_model(kind, arguments, seed).to(saving.get("dtype", torch.float32))
        model.save_pretrained(folder, **{key: value for key, value in saving.items() if key != "dtype"})
        (folder / "generation_config.json").unlink(missing_ok=True)
        # Read back, so that the logits are those of the files; computed in float32 whatever is stored.
        loaded = getattr(transformers, kind + "ForCausalLM").from_pretrained(folder, dtype=torch.float32).eval()
        with torch.no_grad():
            logits = loaded(tokens).logits
        save_file({"logits": logits.contiguous()}, folder / "expected.safetensors",
                  metadata={"transformers": transformers.__version__})
        for file in folder.iterdir():
            file.chmod(0o644)
        print(f"{case}: largest logit {logits.abs().max():.3f}")


if __name__ == "__main__":
    main()
