#!/usr/bin/env python3
"""Writes tests/golden/reference_logits/: tiny random checkpoints of every architecture, and the logits and routing
that tools/reference_forward.py computes for them at every budget.

    pip install numpy pyyaml safetensors && python3 tests/golden/make_reference_logits.py
"""
import hashlib
import json
import pathlib
import sys

import numpy as np
import yaml
from safetensors.numpy import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import reference_forward  # noqa: E402

VOCAB, DIM, HEAD_DIM = 23, 12, 6
BASE = {
    "vocab_size": VOCAB, "dim": DIM, "num_heads": 2, "num_kv_heads": 1, "head_dim": HEAD_DIM,
    "num_dense_layers": 1, "dense_ffn_dim": 16, "num_moe_layers": 2, "num_experts": 5, "expert_dim": 6,
    "num_shared_experts": 1, "tied_embeddings": True, "qk_norm": True, "rope_theta": 100.0, "norm_eps": 1.0e-5,
    "budgets": [{"name": "few", "experts_per_layer": 1}, {"name": "many", "experts_per_layer": 3}],
    "size_embedding": "input",
    "routing": {"segment_length": 4, "mask_source": "learned", "balance": {"kind": "none"}},
    "token_router": {"normalize_weights": True},
}
# Each differs from BASE in what it exercises.
CASES = {
    "dense": {"architecture": "dense", "num_dense_layers": 2, "num_moe_layers": 0, "tied_embeddings": False,
              "qk_norm": False},
    "stepped": {"architecture": "stepped_moe"},
    "stepped_router_only": {"architecture": "stepped_moe", "size_embedding": "router_only", "num_shared_experts": 2,
                            "num_kv_heads": 2,
                            "routing": {"segment_length": 3, "mask_source": "learned", "balance": {"kind": "bias"}}},
    "stepped_input_independent": {"architecture": "stepped_moe", "num_shared_experts": 0,
                                  "routing": {"segment_length": 4, "mask_source": "input_independent",
                                              "balance": {"kind": "none"}}},
    "stepped_previous_last_mlp": {"architecture": "stepped_moe",
                                  "routing": {"segment_length": 4, "selector_position": "previous_last",
                                              "mask_head": {"kind": "mlp", "hidden_dim": 7, "normalize_layers": False},
                                              "mask_source": "learned", "balance": {"kind": "none"}}},
    "stepped_previous_mean_normalized": {"architecture": "stepped_moe",
                                         "routing": {"segment_length": 3, "selector_position": "previous_mean",
                                                     "mask_head": {"kind": "linear", "normalize_layers": True},
                                                     "mask_source": "learned", "balance": {"kind": "none"}}},
    "vanilla": {"architecture": "vanilla_moe"},
    "vanilla_unnormalized": {"architecture": "vanilla_moe", "token_router": {"normalize_weights": False}},
}
SEEDS = {"dense": 0, "stepped": 1, "stepped_router_only": 2, "stepped_input_independent": 3, "vanilla": 4,
         "vanilla_unnormalized": 5}


def shapes(c):
    """Name and shape of every tensor, as docs/checkpoint_format.md lists them."""
    d, e, h = c["dim"], c["num_experts"], c["expert_dim"]
    stepped = c["architecture"] == "stepped_moe"
    result = {"token_embedding.weight": (c["vocab_size"], d), "final_norm.weight": (d,)}
    if not c["tied_embeddings"]:
        result["output.weight"] = (c["vocab_size"], d)
    if stepped:
        logits = c["num_moe_layers"] * e
        head = c["routing"].get("mask_head", {})
        width = head["hidden_dim"] if head.get("kind") == "mlp" else d
        result.update({"mask_generator.norm.weight": (d,), "mask_generator.proj.weight": (logits, width)})
        if head.get("kind") == "mlp":
            result["mask_generator.hidden.weight"] = (width, d)
        if head.get("normalize_layers"):
            result["mask_generator.layer_gain.weight"] = (c["num_moe_layers"],)
        if c["size_embedding"] != "none":
            result["size_embedding.weight"] = (len(c["budgets"]), d)
        if c["routing"]["balance"]["kind"] == "bias":
            result["mask_generator.selection_bias"] = (c["num_moe_layers"], e)
    for layer in range(c["num_dense_layers"] + c["num_moe_layers"]):
        p = f"layers.{layer}"
        q, kv = c["num_heads"] * c["head_dim"], c["num_kv_heads"] * c["head_dim"]
        result.update({f"{p}.attention_norm.weight": (d,), f"{p}.ffn_norm.weight": (d,),
                       f"{p}.attention.q_proj.weight": (q, d), f"{p}.attention.k_proj.weight": (kv, d),
                       f"{p}.attention.v_proj.weight": (kv, d), f"{p}.attention.o_proj.weight": (d, q)})
        if c["qk_norm"]:
            result.update({f"{p}.attention.{x}_norm.weight": (c["head_dim"],) for x in "qk"})
        if layer < c["num_dense_layers"]:
            blocks = {"feed_forward": c["dense_ffn_dim"]}
        else:
            blocks = {"shared_expert": c["num_shared_experts"] * h} if c["num_shared_experts"] else {}
            result.update({f"{p}.routed_experts.{x}_proj.weight": (e, h, d) for x in ("gate", "up")})
            result[f"{p}.routed_experts.down_proj.weight"] = (e, d, h)
            if c["architecture"] == "vanilla_moe":
                result[f"{p}.router.weight"] = (e, d)
        for name, width in blocks.items():
            result.update({f"{p}.{name}.{x}_proj.weight": (width, d) for x in ("gate", "up")})
            result[f"{p}.{name}.down_proj.weight"] = (d, width)
    return result


def random_weights(config, seed):
    generator = np.random.default_rng(seed)
    weights = {}
    for name, shape in sorted(shapes(config).items()):
        values = generator.standard_normal(shape)
        if len(shape) == 1:
            weights[name] = 1.0 + 0.2 * values
        else:
            # Larger than a usual start, so that a mistake in any part moves the logits visibly.
            weights[name] = 1.5 * values / np.sqrt(shape[-1])
    return {name: np.ascontiguousarray(tensor, dtype=np.float32) for name, tensor in weights.items()}


def main():
    folder = ROOT / "tests/golden/reference_logits"
    tokens = np.random.default_rng(99).integers(0, VOCAB, size=(2, 11)).tolist()
    folder.mkdir(exist_ok=True)
    (folder / "tokens.json").write_text(json.dumps(tokens) + "\n")
    for case, changes in CASES.items():
        # A function of the name: a new case leaves the others as they are.
        seed = SEEDS.get(case, sum(case.encode()))
        config = {**BASE, **changes}
        checkpoint = folder / case
        checkpoint.mkdir(exist_ok=True)
        (checkpoint / "config.yaml").write_text(yaml.safe_dump({"model": config}, sort_keys=False))
        save_file(random_weights(config, seed), checkpoint / "model.safetensors")
        model = reference_forward.Checkpoint(checkpoint)
        expected = {}
        for budget in [None] if config["architecture"] == "dense" else config["budgets"]:
            name = budget["name"] if budget else "dense"
            result = reference_forward.forward(model, tokens, name)
            expected.update({f"{tensor}.{name}": values for tensor, values in result.items()})
        save_file(expected, checkpoint / "expected.safetensors")
        sums = {file: hashlib.sha256((checkpoint / file).read_bytes()).hexdigest()
                for file in ("config.yaml", "model.safetensors")}
        (checkpoint / "checksums.json").write_text(json.dumps(sums, indent=2) + "\n")
        for file in checkpoint.iterdir():
            file.chmod(0o644)
        print(case, {name: float(np.abs(values).max()) for name, values in expected.items()})


if __name__ == "__main__":
    main()
