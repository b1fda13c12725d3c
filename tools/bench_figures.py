#!/usr/bin/env python3
"""The figures that tools/bench_guard.sh keeps, made from what it has measured, and compared with the kept ones.

Figures are ratios of one run and counts of instructions, never times: another machine gives nearly the same.
"""
import argparse
import json
import pathlib
import re
import sys

# Loops of our own whose instructions are counted.
KERNELS = (
    "add_into", "dot_product", "exponentiate_row", "norm_backward_row", "norm_forward_row", "rotate_head",
    "row_maximum", "scale_into", "soft_top_k_backward", "softmax_backward_row", "solve_entropy_rows",
    "swiglu_backward", "swiglu_hidden", "token_cross_entropy")


def figures_of_row(row, config):
    """(name, value, whether larger is better) of one line of smoe-bench."""
    labels = "".join(f" {key}={value}" for key, value in sorted(row["labels"].items()))
    name = f"{row['bench']} {config} {row['contestant']}{labels}"
    if row["contestant"].startswith("stepped"):
        yield f"{name}: times the cost per FLOP of the dense model", row["times_first_core_per_flop"], False
    elif row["contestant"] not in ("smoe", "dense"):
        yield f"{name}: times the time of smoe", row["times_first_core"], True
    elif "share_of_peak_core" in row:
        yield f"{name}: share of the matmul peak", row["share_of_peak_core"], True


def figures_of_callgrind(annotation):
    counts = {}
    for line in annotation.splitlines():
        match = re.match(r"\s*([\d,]+)\s*\([^)]*\)\s+\S*:smoe::(\w+)\(", line)
        if match and match[2] in KERNELS:
            counts[match[2]] = counts.get(match[2], 0) + int(match[1].replace(",", ""))
    # Choosing the version of a kernel at load takes a few instructions, too.
    counts = {kernel: count for kernel, count in counts.items() if count >= 1000}
    if not counts:
        sys.exit("error: the output of callgrind names none of the kernels; build with symbols, or see KERNELS in "
                 "tools/bench_figures.py")
    for kernel, count in counts.items():
        yield f"kernels: instructions of {kernel}", count, False


def read_measured(folder):
    measured = {}
    for path in sorted(folder.glob("*.jsonl")):
        config = path.name.split(".")[1]
        for line in path.read_text().splitlines():
            measured.update((name, (value, larger)) for name, value, larger in
                            figures_of_row(json.loads(line), config))
    annotation = folder / "callgrind.txt"
    if annotation.exists():
        measured.update((name, (value, larger)) for name, value, larger in
                        figures_of_callgrind(annotation.read_text()))
    if not measured:
        sys.exit(f"error: no figures were measured in {folder}")
    return measured


def part_of(name):
    """The part of a run that measures a figure: its bench and config, or "kernels"."""
    return " ".join(name.split(":")[0].split(" ")[:2])


def update(kept, measured, path):
    parts = {part_of(name) for name in measured}
    figures = {name: value for name, value in kept.items() if part_of(name) not in parts}
    figures.update((name, round(value, 4)) for name, (value, _) in measured.items())
    path.write_text(json.dumps(dict(sorted(figures.items())), indent=2) + "\n")
    print(f"wrote {len(measured)} figures to {path}, kept {len(figures) - len(measured)} of parts not measured")


def compare(kept, measured, path, tolerance):
    """Prints what is new, missing and worse; returns whether nothing is worse."""
    parts = {part_of(name) for name in measured}
    worse = []
    for name, (value, larger_is_better) in sorted(measured.items()):
        if name not in kept:
            print(f"new: {name} = {value:.4g}")
            continue
        change = value / kept[name] - 1
        if (change if larger_is_better else -change) < -tolerance:
            worse.append(f"{name}: {kept[name]:.4g} before, {value:.4g} now ({100 * change:+.1f}%)")
    for name in sorted(set(kept) - set(measured)):
        if part_of(name) in parts:
            print(f"no longer measured: {name}")
    if worse:
        print("\n".join([f"worse than {path}:"] + worse))
    else:
        print(f"{len(measured)} figures, none worse by more than {100 * tolerance:.0f}%")
    return not worse


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="with KIND.CONFIG.jsonl and callgrind.txt")
    parser.add_argument("figures", type=pathlib.Path, help="JSON file of the kept figures")
    parser.add_argument("--update", action="store_true", help="write the figures instead of comparing")
    parser.add_argument("--tolerance", type=float, default=0.1)
    arguments = parser.parse_args()
    kept = json.loads(arguments.figures.read_text()) if arguments.figures.exists() else {}
    measured = read_measured(arguments.folder)
    if arguments.update:
        update(kept, measured, arguments.figures)
    elif not compare(kept, measured, arguments.figures, arguments.tolerance):
        sys.exit(1)


if __name__ == "__main__":
    main()
