#!/usr/bin/env python3
"""Reference forward pass of a smoe checkpoint in plain numpy, for checking other implementations.

Reads config.yaml and the weights of a dense, stepped_moe or vanilla_moe checkpoint (one safetensors file, or shards with
their index) and writes what `smoe-inspect logits` writes: `logits` [B, T, V] float32 and, for a stepped_moe, `routing` [segments, L, E] uint8.

    python3 tools/reference_forward.py --checkpoint DIR --tokens FILE.json --budget 1B --out FILE.safetensors
    python3 tools/reference_forward.py ... --compare FILE.safetensors     prints the largest difference

Needs numpy and pyyaml. Written to be read, not to be fast: one row at a time, float64 throughout, every
expert in turn. Shapes in comments: T tokens, D width, H query heads, G key/value heads, K head width, L MoE layers,
E experts.
"""
import argparse
import json
import pathlib
import sys

import numpy as np
import yaml

# BF16 is not a type of numpy: the upper half of a float32.
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
          "U8": "u1", "BOOL": "?"}


def load_file(path):
    """The tensors of a safetensors file by name: 8 bytes of header length, a JSON header, raw data."""
    data = pathlib.Path(path).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        tensor = np.frombuffer(data[start + begin:start + end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            tensor = (tensor.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = tensor
    return tensors


def save_file(tensors, path):
    """Writes float32 and uint8 tensors as a safetensors file."""
    header, position = {}, 0
    for name, tensor in tensors.items():
        dtype = {"float32": "F32", "uint8": "U8"}[tensor.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [position, position + tensor.nbytes]}
        position += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    body = b"".join(np.ascontiguousarray(tensor).tobytes() for tensor in tensors.values())
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + body)


def load_weights(folder):
    """All tensors of a checkpoint folder, whose index names the shards where there are several."""
    index = folder / "model.safetensors.index.json"
    files = {"model.safetensors"}
    if index.exists():
        files = set(json.loads(index.read_text())["weight_map"].values())
    weights = {}
    for file in sorted(files):
        weights.update(load_file(folder / file))
    return weights


class Checkpoint:
    """The model section of the config, and the weights by name."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.config = yaml.safe_load((folder / "config.yaml").read_text())["model"]
        self.weights = {name: tensor.astype(np.float64) for name, tensor in load_weights(folder).items()}

    def __getitem__(self, name):
        return self.weights[name]

    def get(self, name):
        return self.weights.get(name)

    def experts_of_budget(self, budget):
        """(index, k) of a budget given by name or by k."""
        for index, entry in enumerate(self.config["budgets"]):
            if str(budget) in (str(entry["name"]), str(entry["experts_per_layer"])):
                return index, int(entry["experts_per_layer"])
        sys.exit(f"no budget {budget}; the model has {self.config['budgets']}")


def rms_norm(x, gain, epsilon):
    return gain * x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon)


def silu(x):
    return x / (1.0 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def swiglu(x, gate, up, down):
    """x [T, D], gate and up [F, D], down [D, F]."""
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def rotate(x, positions, theta):
    """Rotary embedding of x [T, heads, K]: channel i turns with channel i + K/2 (Hugging Face Llama)."""
    half = x.shape[-1] // 2
    frequencies = theta ** (-np.arange(half) * 2.0 / x.shape[-1])
    angles = positions[:, None, None] * frequencies
    first, second = x[..., :half], x[..., half:]
    return np.concatenate(
        [first * np.cos(angles) - second * np.sin(angles), second * np.cos(angles) + first * np.sin(angles)], axis=-1)


def attention(x, model, prefix):
    """Causal grouped-query attention of x [T, D]."""
    config = model.config
    num_tokens, width = x.shape[0], config["head_dim"]
    heads, kv_heads = config["num_heads"], config["num_kv_heads"]
    q = (x @ model[prefix + ".q_proj.weight"].T).reshape(num_tokens, heads, width)
    k = (x @ model[prefix + ".k_proj.weight"].T).reshape(num_tokens, kv_heads, width)
    v = (x @ model[prefix + ".v_proj.weight"].T).reshape(num_tokens, kv_heads, width)
    if config["qk_norm"]:
        q = rms_norm(q, model[prefix + ".q_norm.weight"], float(config["norm_eps"]))
        k = rms_norm(k, model[prefix + ".k_norm.weight"], float(config["norm_eps"]))
    positions = np.arange(num_tokens, dtype=np.float64)
    q = rotate(q, positions, float(config["rope_theta"]))
    k = rotate(k, positions, float(config["rope_theta"]))
    future = np.triu(np.full((num_tokens, num_tokens), -np.inf), k=1)
    outputs = []
    for head in range(heads):
        shared = head * kv_heads // heads  # consecutive query heads share a key and value head
        scores = q[:, head] @ k[:, shared].T / np.sqrt(width) + future
        outputs.append(softmax(scores) @ v[:, shared])
    return np.concatenate(outputs, axis=-1) @ model[prefix + ".o_proj.weight"].T


def top_k_mask(scores, k):
    """Exactly k ones at the largest scores; ties go to the lowest index."""
    mask = np.zeros_like(scores)
    mask[np.argsort(-scores, kind="stable")[:k]] = 1.0
    return mask


def selector_states(z, segment_length, position):
    """What each segment of one row chooses from: z of its first token, of the one before, or a mean over S before."""
    states = []
    for begin in range(0, len(z), segment_length):
        if position == "first" or begin == 0:
            states.append(z[begin])
        elif position == "previous_last":
            states.append(z[begin - 1])
        else:
            states.append(z[begin - segment_length:begin].mean(axis=0))
    return np.stack(states)


def head_logits(normed, model, shape):
    """Logits [segments, L, E] of normalised states; configs of before there was a choice have the linear head."""
    head = model.config["routing"].get("mask_head", {})
    if head.get("kind", "linear") == "mlp":
        normed = silu(normed @ model["mask_generator.hidden.weight"].T)
    logits = (normed @ model["mask_generator.proj.weight"].T).reshape(len(normed), *shape)
    if head.get("normalize_layers", False):
        logits = rms_norm(logits, model["mask_generator.layer_gain.weight"][:, None], float(model.config["norm_eps"]))
    return logits


def segment_masks(z, model, k, segment_length, router_offset):
    """Masks [segments, L, E] of one row, from the last dense layer's z."""
    config = model.config
    source = config["routing"]["mask_source"]
    selectors = selector_states(z, segment_length, config["routing"].get("selector_position", "first"))
    shape = (config["num_moe_layers"], config["num_experts"])
    if source == "prefix":
        return np.broadcast_to(np.arange(shape[1]) < k, (len(selectors), *shape)).astype(np.float64)
    if source == "input_independent":
        selectors = np.ones_like(selectors)
    elif source != "learned":
        sys.exit(f"mask_source {source} is a random control, which this reference does not reproduce")
    if router_offset is not None:
        selectors = selectors + router_offset
    normed = rms_norm(selectors, model["mask_generator.norm.weight"], float(config["norm_eps"]))
    # float32 as in training, so that ties are those of the training code.
    logits = head_logits(normed, model, shape).astype(np.float32)
    bias = model.get("mask_generator.selection_bias")
    if bias is not None:
        logits = logits + bias.astype(np.float32)
    return np.stack([np.stack([top_k_mask(row, k) for row in segment]) for segment in logits]).astype(np.float64)


def token_weights(x, model, prefix, k):
    """Routing weights [T, E] of the vanilla MoE."""
    probabilities = softmax(x @ model[prefix + ".router.weight"].T)
    mask = np.stack([top_k_mask(row.astype(np.float32), k) for row in probabilities])
    weights = probabilities * mask
    if model.config["token_router"]["normalize_weights"]:
        weights = weights / weights.sum(axis=-1, keepdims=True)
    return weights


def moe_feed_forward(x, model, prefix, weights):
    """Shared experts plus the routed experts weighted by weights [T, E]."""
    out = np.zeros_like(x)
    if model.config["num_shared_experts"] > 0:
        out += swiglu(x, *(model[f"{prefix}.shared_expert.{name}_proj.weight"] for name in ("gate", "up", "down")))
    gate, up, down = (model[f"{prefix}.routed_experts.{name}_proj.weight"] for name in ("gate", "up", "down"))
    for expert in range(model.config["num_experts"]):
        tokens = np.nonzero(weights[:, expert])[0]
        out[tokens] += weights[tokens, expert, None] * swiglu(x[tokens], gate[expert], up[expert], down[expert])
    return out


def forward_row(model, tokens, budget, segment_length):
    """Logits [T, V] and masks [segments, L, E] (None unless stepped_moe) of one row of token ids."""
    config = model.config
    stepped = config["architecture"] == "stepped_moe"
    index, k = (None, None) if config["architecture"] == "dense" else model.experts_of_budget(budget)
    size_vector = model["size_embedding.weight"][index] if stepped and config["size_embedding"] != "none" else None

    h = model["token_embedding.weight"][tokens]
    if stepped and config["size_embedding"] == "input":
        h = h + size_vector
    masks = None
    for layer in range(config["num_dense_layers"] + config["num_moe_layers"]):
        prefix = f"layers.{layer}"
        moe_layer = layer - config["num_dense_layers"]
        if moe_layer == 0 and stepped:
            offset = size_vector if config["size_embedding"] == "router_only" else None
            masks = segment_masks(h, model, k, segment_length, offset)
        normed = rms_norm(h, model[prefix + ".attention_norm.weight"], float(config["norm_eps"]))
        h = h + attention(normed, model, prefix + ".attention")
        normed = rms_norm(h, model[prefix + ".ffn_norm.weight"], float(config["norm_eps"]))
        if moe_layer < 0:
            names = ("gate", "up", "down")
            h = h + swiglu(normed, *(model[f"{prefix}.feed_forward.{name}_proj.weight"] for name in names))
        elif stepped:
            segment_of_token = np.arange(len(tokens)) // segment_length
            h = h + moe_feed_forward(normed, model, prefix, masks[segment_of_token, moe_layer])
        else:
            h = h + moe_feed_forward(normed, model, prefix, token_weights(normed, model, prefix, k))
    head = model["token_embedding.weight"] if config["tied_embeddings"] else model["output.weight"]
    return rms_norm(h, model["final_norm.weight"], float(config["norm_eps"])) @ head.T, masks


def forward(model, token_rows, budget, segment_length=None):
    """The tensors of `smoe-inspect logits`, by name."""
    segment_length = segment_length or model.config["routing"]["segment_length"]
    rows = [forward_row(model, np.array(tokens), budget, segment_length) for tokens in token_rows]
    result = {"logits": np.stack([logits for logits, _ in rows]).astype(np.float32)}
    if rows[0][1] is not None:
        result["routing"] = np.concatenate([masks for _, masks in rows]).astype(np.uint8)
    return result


def compare(ours, path):
    """Prints the largest difference of each tensor to those of a file; returns True if they agree."""
    theirs = load_file(path)
    agree = set(ours) == set(theirs)
    for name in sorted(set(ours) & set(theirs)):
        difference = np.abs(ours[name].astype(np.float64) - theirs[name].astype(np.float64)).max()
        scale = np.abs(ours[name].astype(np.float64)).max()
        agree = agree and difference <= 1e-4 * max(scale, 1.0)
        print(f"{name} {list(ours[name].shape)}: largest difference {difference:.3g}, largest value {scale:.3g}")
    print("agree" if agree else "DIFFER")
    return agree


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--tokens", required=True, help="JSON list of lists of token ids")
    parser.add_argument("--budget", help="name or k; not for dense models")
    parser.add_argument("--segment-length", type=int)
    parser.add_argument("--out", help="safetensors file to write")
    parser.add_argument("--compare", help="safetensors file of smoe-inspect logits")
    arguments = parser.parse_args()
    token_rows = json.loads(pathlib.Path(arguments.tokens).read_text())
    result = forward(Checkpoint(arguments.checkpoint), token_rows, arguments.budget, arguments.segment_length)
    if arguments.out:
        save_file(result, arguments.out)
    if arguments.compare and not compare(result, arguments.compare):
        sys.exit(1)


if __name__ == "__main__":
    main()
