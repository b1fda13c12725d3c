#!/usr/bin/env python3
"""Opens a file of ours with the public `safetensors` library and prints every tensor and the metadata.

    python3 tests/golden/check_safetensors.py FILE.safetensors
"""
import sys

import numpy as np
from safetensors import safe_open

with safe_open(sys.argv[1], framework="numpy") as file:
    print("metadata", file.metadata())
    for name in file.keys():
        try:
            tensor = file.get_tensor(name)
        except (TypeError, AttributeError) as error:  # numpy has no bfloat16
            print(name, file.get_slice(name).get_dtype(), file.get_slice(name).get_shape(), f"({error})")
            continue
        print(name, tensor.dtype, tensor.shape, np.array2string(tensor.ravel()[:4]))
