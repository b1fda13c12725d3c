#!/usr/bin/env python3
"""Makes golden.json: what the public code answers on made-up annotations and battles.

    python3 -m venv venv
    venv/bin/pip install alpaca-eval==0.6.6 scikit-learn==1.5.2 "numpy<2.3" "pandas<3"
    venv/bin/python make_golden.py

Length-controlled win rates come from alpaca_eval's own function; its download of difficulties and of the
annotations of its two rewritten baselines is replaced by made-up tables of the same columns. Each case is
solved three times: by the untouched package; with folds that do not depend on the processor (the package's
come from numpy's unstable sort of equal numbers, which differs between instruction sets); and with those folds
and a tight tolerance, which is what the formula says. Bradley-Terry scores come from scikit-learn's LogisticRegression without penalty on one row a battle
and outcome, the way Arena-Hard publishes it; verdicts from Python's re.
"""

import copy
import json
import math
import re
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from alpaca_eval.metrics import glm_winrate

warnings.filterwarnings("ignore")
HERE = Path(__file__).parent


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def made_up_annotations(rng, num_items, difficulty, quality, length_effect, num_invalid):
    baseline = rng.integers(20, 900, num_items)
    model = np.maximum(1, (baseline * rng.uniform(0.4, 2.2, num_items)).astype(int))
    delta = (baseline - model) / np.std(baseline - model, ddof=1)
    logit = quality + 0.8 * difficulty - length_effect * np.tanh(delta) + rng.normal(0, 1.2, num_items)
    preference = 1 + sigmoid(2.0 * logit)
    preference[::17] = 1.5
    preference[5] = 0.0  # the package's older spelling of a draw
    preference[rng.choice(np.arange(6, num_items), num_invalid, replace=False)] = np.nan
    return baseline, model, preference


def made_up_gamed(rng, num_items, difficulty):
    frames = []
    for name, shift in (("concise", -1.0), ("verbose", 1.0)):
        delta = rng.normal(-shift, 0.5, num_items)
        preference = sigmoid(2.5 * (-1.1 * np.tanh(delta) + 0.2 * rng.normal(size=num_items)))
        frames.append(pd.DataFrame({
            "preference": preference, "index": np.arange(num_items), "std_delta_len": delta,
            "instruction_difficulty": difficulty, "not_gamed_baseline": False, "model": name}))
    return pd.concat(frames, ignore_index=True)


class StableGroupKFold(GroupKFold):
    """The folds of GroupKFold for groups of equal size 0..n-1, had its sort been stable."""

    def _iter_test_indices(self, X, y, groups):
        groups = np.asarray(groups)
        for fold in range(self.n_splits):
            yield np.where((groups.max() - groups) % self.n_splits == fold)[0]


def solve(annotations, glm_name, folder, name):
    info = copy.deepcopy(glm_winrate.GLM_INFO[glm_name])
    glm_winrate.GroupKFold = GroupKFold if name == "package" else StableGroupKFold
    if name == "stable_folds_tight":
        info["kwargs"].update(tol=1e-12, max_iter=1_000_000)
    weights_folder = Path(folder) / name
    metrics = glm_winrate.get_length_controlled_winrate(
        annotations.copy(), glm_name=glm_name, save_weights_dir=weights_folder, glm_info=info,
        is_add_glm_preference_inplace=False, is_warn_extreme_changes=False)
    weights = pd.read_csv(next((weights_folder / glm_name).glob("*.csv")), index_col=0).iloc[-1]
    return {"win_rate": metrics["win_rate"], "standard_error": metrics["standard_error"],
            "lc_win_rate": metrics["length_controlled_winrate"],
            "lc_standard_error": metrics["lc_standard_error"],
            "weights": {name: float(value) for name, value in weights.items()}}


def length_controlled_cases():
    cases = []
    plans = [("length_controlled_v1", -0.5, 0.9, 0), ("length_controlled_v1", 1.2, 0.3, 4),
             ("length_controlled_noreg", -1.5, 1.4, 2), ("length_controlled_minimal", 0.3, 0.7, 0),
             ("length_controlled_minimal", 0.0, 0.02, 1)]
    for seed, (glm_name, quality, length_effect, num_invalid) in enumerate(plans):
        rng = np.random.default_rng(seed)
        num_items = 120
        difficulty = np.round(rng.normal(0, 1, num_items), 4)
        baseline, model, preference = made_up_annotations(rng, num_items, difficulty, quality, length_effect,
                                                          num_invalid)
        gamed = made_up_gamed(rng, num_items, difficulty)
        annotations = pd.DataFrame({
            "preference": preference, "output_1": ["x" * n for n in baseline],
            "output_2": ["y" * n for n in model], "generator_1": "baseline", "generator_2": "model",
            "annotator": "made_up"})
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "df_gamed.csv"
            gamed.to_csv(table, index=False)
            glm_winrate.hf_hub_download = lambda **_: str(table)
            solutions = {name: solve(annotations, glm_name, folder, name)
                         for name in ("package", "stable_folds", "stable_folds_tight")}
            gamed_text = table.read_text()
        cases.append({
            "glm": glm_name, "baseline_length": baseline.tolist(), "model_length": model.tolist(),
            "preference": [None if math.isnan(p) else p for p in preference],
            "difficulty": difficulty.tolist(),
            "gamed_csv": gamed_text if glm_name == "length_controlled_v1" else None,
            **solutions})
    return cases


LABELS = {"A>>B": (1.0, 3), "A>B": (1.0, 1), "A=B": (0.5, 1), "B>A": (0.0, 1), "B>>A": (0.0, 3)}


def fit_bradley_terry(battles):
    """battles: (model_a, model_b, score of a, weight); returns ratings on Elo's scale."""
    names = sorted({name for battle in battles for name in battle[:2]})
    rows, outcomes = [], []
    for name_a, name_b, score, weight in battles:
        row = np.zeros(len(names))
        row[names.index(name_a)], row[names.index(name_b)] = math.log(10), -math.log(10)
        for _ in range(weight):
            for half in range(2):  # a draw is half a win for each
                rows.append(row)
                outcomes.append(score if score != 0.5 else half)
    fit = LogisticRegression(fit_intercept=False, penalty=None, tol=1e-10, max_iter=10000)
    fit.fit(np.array(rows), np.array(outcomes).astype(int))
    return dict(zip(names, 400 * fit.coef_[0]))


def rows_of(games, names):
    """One (a, b, score, weight 1) row a battle and copy, as published."""
    return [(names[0], names[1], LABELS[label][0], 1) for label in games for _ in range(LABELS[label][1])]


def arena_hard_case(seed, probabilities, num_questions, rounds):
    rng = np.random.default_rng(seed)
    labels = list(LABELS)
    # Labels as "model against baseline": A is the model here.
    games = rng.choice(labels, size=(num_questions, 2), p=probabilities)
    flat = rows_of(games.reshape(-1), ("model", "baseline"))

    def win_rate(battles):
        ratings = fit_bradley_terry(battles)
        return 1 / (1 + 10 ** ((ratings["baseline"] - ratings["model"]) / 400)), \
            ratings["model"] - ratings["baseline"]

    rate, difference = win_rate(flat)
    samples = [win_rate([flat[i] for i in rng.integers(0, len(flat), len(flat))])[0] for _ in range(rounds)]
    return {"games": games.tolist(), "win_rate": rate, "rating_difference": difference,
            "bootstrap_low": float(np.percentile(samples, 2.5)),
            "bootstrap_high": float(np.percentile(samples, 97.5))}


def tournament_case():
    rng = np.random.default_rng(7)
    strength = {"a": 0.0, "b": 0.6, "c": -0.4, "d": 1.5}
    battles = []
    for _ in range(300):
        first, second = rng.choice(list(strength), 2, replace=False)
        wins = rng.random() < sigmoid(strength[first] - strength[second])
        score = 0.5 if rng.random() < 0.15 else float(wins)
        battles.append((str(first), str(second), score, int(rng.choice([1, 3]))))
    return {"battles": battles, "ratings": fit_bradley_terry(battles)}


def verdict_cases():
    patterns = json.loads(json.dumps(["\\[\\[([AB<>=]+)\\]\\]", "\\[([AB<>=]+)\\]"]))
    texts = ["My final verdict is tie: [[A=B]]", "first [[A>B]] but on reflection [[B>>A]].",
             "[A>>B]", "[A>B] and then [[A=B]]", "[[a>b]]", "no verdict at all", "", "[[C>D]]", "[[]]",
             "[[A>B]] [[A>B]]", "[[ A>B ]]", "\u00e9\u4e2d [[B>A]]\n", "[[AB]]"]
    results = []
    for text in texts:
        found = None
        for pattern in patterns:
            matches = [match for match in re.findall(pattern, text.upper()) if match]
            if matches:
                found = matches[-1]
                break
        results.append({"text": text, "match": found})
    return {"patterns": patterns, "cases": results}


if __name__ == "__main__":
    golden = {
        "length_controlled": length_controlled_cases(),
        "arena_hard": [arena_hard_case(1, [0.1, 0.2, 0.3, 0.25, 0.15], 100, 300),
                       arena_hard_case(2, [0.02, 0.05, 0.08, 0.25, 0.6], 100, 300)],
        "tournament": tournament_case(),
        "verdicts": verdict_cases(),
    }
    (HERE / "golden.json").write_text(json.dumps(golden, indent=None, ensure_ascii=True) + "\n")
    for case in golden["length_controlled"]:
        print(case["glm"], [case[name]["lc_win_rate"]
                            for name in ("package", "stable_folds", "stable_folds_tight")])
    for case in golden["arena_hard"]:
        print({key: value for key, value in case.items() if key != "games"})
    print(golden["tournament"]["ratings"])
