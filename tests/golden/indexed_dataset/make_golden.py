#!/usr/bin/env python3
"""Writes the golden files of the indexed-dataset tests, and reads datasets with Megatron-LM's own class.

  make_golden.py                      writes uint16.{bin,idx} and int32.{bin,idx} beside this file, from the format's
                                      description alone (struct and numpy; no code of ours, none of Megatron-LM's)
  make_golden.py --megatron PREFIX..  prints every document of PREFIX as megatron.core reads it, as JSON lines

The second needs `pip install numpy torch megatron-core`; version 0.16.1 was used.
"""
import json
import pathlib
import struct
import sys

import numpy as np

# Documents as lists of sequences: one or several sequences, and one document without any token.
DOCUMENTS = {
    "uint16": [[[1, 2, 3]], [[65534, 7], [8]], [[]], [[9, 10, 11, 12, 2]]],
    "int32": [[[128000, 5]], [[6]], [[70000, 1], [2, 3], [4]]],
}
CODES = {"int32": 4, "uint16": 8}


def write(prefix, documents, dtype):
    sequences = [sequence for document in documents for sequence in document]
    tokens = np.array([token for sequence in sequences for token in sequence], dtype=dtype)
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int32)
    pointers = (np.cumsum(lengths, dtype=np.int64) - lengths) * tokens.itemsize
    borders = np.cumsum([0] + [len(document) for document in documents], dtype=np.int64)
    pathlib.Path(f"{prefix}.bin").write_bytes(tokens.tobytes())
    header = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, CODES[dtype], len(sequences), len(borders))
    arrays = lengths.tobytes() + pointers.astype(np.int64).tobytes() + borders.tobytes()
    pathlib.Path(f"{prefix}.idx").write_bytes(header + arrays)


def read_with_megatron(prefix):
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    dataset = IndexedDataset(prefix, mmap=True)
    borders = dataset.document_indices
    for begin, end in zip(borders[:-1], borders[1:]):
        tokens = [int(token) for i in range(begin, end) for token in dataset[i]]
        print(json.dumps(tokens))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--megatron"]:
        for path in sys.argv[2:]:
            read_with_megatron(path)
    else:
        folder = pathlib.Path(__file__).parent
        for name, content in DOCUMENTS.items():
            write(folder / name, content, name)
