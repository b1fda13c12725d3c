#!/usr/bin/env python3
"""Reads the event files of a run with the real TensorBoard and compares them with metrics.jsonl.

    python3 -m venv venv && venv/bin/pip install tensorboard
    venv/bin/python tests/golden/check_tensorboard.py RUN_FOLDER

Exit status 0 if every training and validation loss and every learning rate is there with the same value, once.
"""
import json
import pathlib
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def as_float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def expected_scalars(metrics):
    for text in metrics.read_text().splitlines():
        line = json.loads(text)
        if line["kind"] == "train":
            for budget, loss in line["loss"].items():
                yield f"train/loss/{budget}", line["step"], loss
            yield "train/learning_rate", line["step"], line["learning_rate"]
        elif line["kind"] == "validation":
            for source, values in line["sources"].items():
                for budget, loss in values["loss"].items():
                    yield f"validation/loss/{source}/{budget}", line["step"], loss


def main():
    run = pathlib.Path(sys.argv[1])
    accumulator = EventAccumulator(str(run), size_guidance={"scalars": 0})
    accumulator.Reload()
    expected = {}
    for tag, step, value in expected_scalars(run / "metrics.jsonl"):
        expected.setdefault(tag, []).append((step, as_float32(value)))
    for tag, points in sorted(expected.items()):
        found = [(event.step, event.value) for event in accumulator.Scalars(tag)]
        if found != points:
            sys.exit(f"{tag}: TensorBoard has {found}, metrics.jsonl has {points}")
    print(f"{len(expected)} tags, {sum(map(len, expected.values()))} points agree")


if __name__ == "__main__":
    main()
