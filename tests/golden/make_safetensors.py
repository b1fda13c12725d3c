#!/usr/bin/env python3
"""Writes safetensors_python.safetensors with the public `safetensors` library (0.8.0, numpy 2.4): one tensor of
each dtype that numpy has, an empty one, a scalar and metadata. The values are those that
tests/model/safetensors_test.cpp expects.

    pip install numpy safetensors && python3 tests/golden/make_safetensors.py
"""
import pathlib

import numpy as np
from safetensors.numpy import save_file

tensors = {
    "double": np.array([[1.5, -2.25, 1e300]], dtype=np.float64),
    "float": np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
    "half": np.array([0.5, -65504.0], dtype=np.float16),
    "long": np.array([-(2**62), 7], dtype=np.int64),
    "int": np.array([-(2**30), 7], dtype=np.int32),
    "short": np.array([-32768, 7], dtype=np.int16),
    "char": np.array([-128, 127], dtype=np.int8),
    "byte": np.array([0, 255, 3], dtype=np.uint8),
    "bool": np.array([[True], [False]]),
    "empty": np.zeros((0, 4), dtype=np.float32),
    "scalar": np.array(3.5, dtype=np.float32),
}
save_file(tensors, pathlib.Path(__file__).parent / "safetensors_python.safetensors",
          metadata={"made_by": "safetensors", "note": "f\u00fcr Tests"})
