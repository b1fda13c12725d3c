#!/usr/bin/env python3
"""What lm-evaluation-harness's own filters, exact_match and minerva_math functions make of many texts.

    pip install lm-eval==0.4.13 math-verify antlr4-python3-runtime==4.11.1
    make_golden.py MATH.jsonl golden.json

MATH.jsonl is a file of the MATH benchmark (MIT): the boxed answers of some of its solutions are used. All other
texts are made here. Patterns are those of the harness's task files.
"""
import json
import random
import re
import sys

from lm_eval.api.metrics import exact_match_hf_evaluate
from lm_eval.filters.extraction import RegexFilter, WhitespaceFilter
from lm_eval.tasks.minerva_math import utils

source = random.Random(20260731)

FILTERS = [
    (r"#### (\-?[0-9\.\,]+)", 0), (r"(-?[$0-9.,]{2,})|(-?[0-9]+)", -1), (r"The answer is (\-?[0-9\.\,]+).", 0),
    (r"answer is \(?([ABCDEFGHIJ])\)?", 0), (r"(?<=the answer is )(.*)(?=.)", 0), (r"((?:a|b)*)", -1), (r"\b(\w+)\b", 1),
    (r"\s*([A-D])(?:\s|$)", -2), (r"(?i)answer:\s*(\S+)", 0), (r"^\s*(\d*)", 0), (r"(x)?(y)?", 0), (r"x*", 1),
    (r"\d{,2}$", 0), (r"(?P<n>[^\]\s]+)\Z", 0), (r"[\w.-]+", -1), (r"\W+", 0), (r"(?m)^(.*)$", -1),
]
PIECES = [
    "The answer is ", "the answer is ", "#### ", "Answer: ", "answer:", "42", "-7", "1,234", "$5.50", "3.", "0.5", "1,", ".",
    ",", "(B)", "B", "A ", "D", "\n", " ", "\u00a0", "\u2028", "\x1c", "é", "ß", "İ", "x", "y", "xx", "ab", "aab", "]",
    "[", "naïve", "½", "٣", "😀", "so ", "\t", "-", "$", "%", "\r\n", "स्ते", "_", "''", "K\u212a", "\u180e",
]
IGNORED = [
    [",", r"\$", r"(?s).*#### ", r"\.$"], [], [r"\s+"], [r"\b(a|an|the)\b"], [r"[^\w]"], [r"^\d+", r"$"], [r"\.$", ","],
]
MATH_PIECES = [
    "\\frac12", "\\frac{1}{2}", "\\frac1{72}", "\\dfrac{3}{4}", "\\sqrt3", "\\sqrt[3]8", "\\sqrt{2}", "\\sqrt[n]{x}", "x", "=", "5",
    "1,000", "12,345,678", "0,1", "-3", "\\text{cm}", "\\text{ m}", "\\text{and}", ",\\text{and}", "\\mbox{ ft}", "$", "\\$", ".$", " ",
    "\\ ", "cm", " cm", "ft", "\\left(", "\\right)", "square feet", "degrees", "^\\circ", "^{\\circ}", "\\%", "\\!", ",\\!", "{,}", "\\;",
    "\"", "\\dots", "\\ldots", "\\boxed{7}", "\\textbf{B}", "\\overline{AB}", "\\text{s}", "\\text{}", "a ", "an ", "issue", "units",
    "\\pi", "\\pi cm", "\\picm", "\\theta", "\\cup", "(1,2]", "meters", "\\text{.}", "\\mathrm{th}", "\n", "dollars", "pounds", "é",
    "\\text{\n}", "\\text{}^2", "childrentickets", "}", "{", "hours and minutes", "\\$18.90", "3\\frac12",
]


def some(pieces, most):
    return "".join(source.choice(pieces) for _ in range(source.randint(0, most)))


def response():
    text = some(PIECES, 8)
    if source.random() < 0.3:
        number = source.choice(["42", "-3", "1,000.", "$7", "2.50", "", "7,"])
        text += source.choice(["#### ", "The answer is ", "so the answer is "]) + number + source.choice(["", ".", "\n", " dollars"])
    return text


def filter_cases():
    cases = []
    for pattern, index in FILTERS:
        for _ in range(30):
            text = response()
            try:
                value = RegexFilter(pattern, group_select=index).apply([[text]], [{}])[0][0]
            except IndexError:  # fewer matches than the index wants: the harness has no answer to that
                continue
            cases.append({"pattern": pattern, "match": index, "response": text, "expected": value})
    return cases


def exact_match(prediction, references, options):
    """As the harness calls it: once, with the prediction repeated; any equality counts."""
    score = exact_match_hf_evaluate([prediction] * len(references), references, **options)["exact_match"]
    return bool(score > 0.0)


def variant(text):
    change = source.randint(0, 5)
    return [text, text.upper(), text.lower() + ".", "$" + text, "The " + text, text.replace("e", "")][change]


def exact_match_cases():
    cases = []
    for _ in range(300):
        options = {"regexes_to_ignore": source.choice(IGNORED), "ignore_case": source.random() < 0.5,
                   "ignore_punctuation": source.random() < 0.5}
        base = source.choice(["42", "1,234", "Ürümqi", "The Beatles", "İzmir", "ΟΔΟΣ", "so 5 #### 7", "J.R.R. Tolkien", "a b", "straße", ""])
        references = [variant(base) for _ in range(source.randint(1, 3))]
        prediction = variant(source.choice([base, base, some(PIECES, 3)]))
        if any(len(text.lower()) != len(text) for text in [prediction, *references]):
            continue  # NumPy's fixed-width strings would cut off what lower() adds: an accident, not a rule
        cases.append({"prediction": prediction, "references": references, "expected": exact_match(prediction, references, options),
                      **options})
    return cases


def whitespace_cases():
    texts = [source.choice(["", " ", "\u00a0", "\x1f", "\u200b", "\u3000\n"]) + some(PIECES, 3) for _ in range(40)]
    return [{"response": text, "expected": WhitespaceFilter().apply([[text]], [{}])[0][0]} for text in texts]


def math_cases(path):
    with open(path, encoding="utf-8") as file:
        solutions = [json.loads(line)["solution"] for line in file]
    boxed = [utils.last_boxed_only_string(solution) for solution in source.sample(solutions, 250)]
    answers = [utils.remove_boxed(text) for text in boxed if text and not text.startswith("\\fbox")]
    made = [some(MATH_PIECES, 5) for _ in range(450)]
    normalized = [{"answer": text, "expected": utils.normalize_final_answer(text)} for text in answers + made]
    responses = []
    for text in source.sample(answers + made, 120):
        ending = source.choice([". I hope it is correct.", ". ", ".", " I hope it is correct.", "! I hope it is correct. Problem", ""])
        start = source.choice(["Final Answer: The final answer is ", "Final Answer: The final answer is", "The final answer is "])
        whole = some(MATH_PIECES, 2) + start + source.choice(["$" + text + "$", text]) + ending
        responses.append({"response": whole, "expected": utils.get_unnormalized_answer(whole)})
    solutions = [source.choice(["So $\\boxed{", "\\fbox{", "\\boxed ", "\\boxed{1} and \\boxed{", ""]) + text +
                 source.choice(["}", "}$.", "", "$ and more"]) for text in source.sample(answers + made, 150)]
    boxes = [{"solution": text, "expected": utils.last_boxed_only_string(text)} for text in solutions]
    return {"normalized": normalized, "responses": responses, "boxes": boxes}


def main():
    golden = {"filters": filter_cases(), "exact_match": exact_match_cases(), "whitespace": whitespace_cases(),
              "math": math_cases(sys.argv[1])}
    text = json.dumps(golden)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(re.sub(r'(\[|, )\{"', lambda match: match.group(0).replace('{"', '\n{"'), text) + "\n")
    print({name: len(cases) for name, cases in golden.items()}, {name: len(cases) for name, cases in golden["math"].items()})
    print("exact_match true:", sum(case["expected"] for case in golden["exact_match"]),
          "invalid:", sum(case["expected"] == "[invalid]" for case in golden["filters"]))


if __name__ == "__main__":
    main()
