#!/usr/bin/env python3
"""tools/reference_forward.py against `smoe-inspect logits`: reference_forward_test.py BIN_FOLDER SOURCE_FOLDER.

Every architecture of tests/golden/reference_logits, as it is and as a bfloat16 checkpoint in shards with an index.
Exits with 77, which ctest shows as skipped, where numpy or pyyaml is not installed.
"""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import yaml  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}; pip install numpy pyyaml to run the reference")
    sys.exit(77)

BIN, SOURCE = (pathlib.Path(argument) for argument in sys.argv[1:3])
GOLDEN = SOURCE / "tests/golden/reference_logits"
sys.path.insert(0, str(SOURCE / "tools"))
sys.dont_write_bytecode = True
import reference_forward  # noqa: E402


def write_bfloat16(tensors, path):
    header, body = {}, b""
    for name, tensor in tensors.items():
        data = (np.ascontiguousarray(tensor, dtype=np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def write_sharded(source, folder):
    """The checkpoint in bfloat16, every third tensor in the same of three files."""
    folder.mkdir()
    shutil.copy(source / "config.yaml", folder)
    weights = reference_forward.load_file(source / "model.safetensors")
    names = sorted(weights)
    weight_map = {}
    for shard in range(3):
        file = f"model-{shard + 1:05}-of-00003.safetensors"
        write_bfloat16({name: weights[name] for name in names[shard::3]}, folder / file)
        weight_map.update({name: file for name in names[shard::3]})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
    (folder / "checksums.json").write_text(json.dumps(sums))


def compare(checkpoint, folder):
    """True if both programs agree at every budget."""
    config = reference_forward.Checkpoint(checkpoint).config
    agree = True
    for budget in [None] if config["architecture"] == "dense" else [entry["name"] for entry in config["budgets"]]:
        option = ["--budget", budget] if budget else []
        command = ["--checkpoint", str(checkpoint), "--tokens", str(GOLDEN / "tokens.json"), *option]
        ours = folder / f"{checkpoint.name}-{budget}.safetensors"
        subprocess.run([BIN / "smoe-inspect", "logits", *command, "--out", str(ours)], check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, "OMP_WAIT_POLICY": "passive"})
        result = subprocess.run([sys.executable, SOURCE / "tools/reference_forward.py", *command, "--compare", str(ours)],
                                capture_output=True, text=True)
        print(checkpoint.name, budget, result.stdout.strip().replace("\n", "; "), result.stderr.strip())
        agree = agree and result.returncode == 0 and result.stdout.rstrip().endswith("agree")
    return agree


def main():
    agree = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for source in sorted(path for path in GOLDEN.iterdir() if path.is_dir()):
            agree = compare(source, folder) and agree
            sharded = folder / f"{source.name}-sharded"
            write_sharded(source, sharded)
            agree = compare(sharded, folder) and agree
    sys.exit(0 if agree else 1)


main()
