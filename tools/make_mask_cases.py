#!/usr/bin/env python3
"""Makes texts for `smoe-inspect masks` from a corpus: JSON Lines files with `text` and `domain`, or named by domain.

Writes to the output file, one JSON object a line:
  gradual    half a part of topic A, then sentences of A and B mixed with a growing share of B, then half a part of B
  abrupt     topic A, then topic B
  returning  topic A, topic B, topic A again (another document)
and --documents documents of every domain, each about its one topic, for the test of significance.
"""
import argparse
import json
import pathlib
import random
import re
import sys


def read_documents(folder):
    """Texts by domain, those of at least 2,000 characters."""
    domains = {}
    for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                if len(record["text"]) >= 2000:
                    domains.setdefault(record.get("domain", path.stem), []).append(record["text"])
    return domains


def sentences(text):
    return [part for part in re.split(r"(?<=[.!?;:])\s+|\n+", text) if part.strip()]


def gradual(name, topics, texts, length, generator):
    """Parts of one sentence each between two pure ones, the share of the second topic growing from 0 to 1."""
    pools = [sentences(text) for text in texts]
    middle, used, size = [], [0, 0], 0
    while size < length and all(u < len(pool) for u, pool in zip(used, pools)):
        which = int(generator.random() < size / length)
        sentence = pools[which][used[which]] + " "
        used[which] += 1
        size += len(sentence)
        middle.append({"topic": topics[which], "text": sentence})
    pure = length // 4
    return {"name": name, "parts": [{"topic": topics[0], "text": texts[2][:pure] + "\n"}, *middle,
                                    {"topic": topics[1], "text": texts[3][:pure]}]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="folder of *.jsonl files, for example examples/corpus/validation")
    parser.add_argument("out", help="file to write")
    parser.add_argument("--topics", nargs=2, default=["stories", "code_python"], metavar=("A", "B"))
    parser.add_argument("--characters", type=int, default=1600,
                        help="of each part of a case; three parts must fit into the sequence length of the training, "
                             "a token being 2.5 to 4 characters")
    parser.add_argument("--documents", type=int, default=8, help="of each domain")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    domains = read_documents(arguments.corpus)
    first, second = arguments.topics
    for topic in arguments.topics:
        if len(domains.get(topic, [])) < 3:
            sys.exit(f"{arguments.corpus}: topic {topic} has fewer than 3 documents of 2,000 characters; there are "
                     + ", ".join(f"{name} ({len(texts)})" for name, texts in sorted(domains.items())))
    generator = random.Random(arguments.seed)
    a, b = (generator.sample(domains[topic], 3) for topic in arguments.topics)
    size = arguments.characters
    part = lambda topic, text: {"topic": topic, "text": text[:size] + "\n"}
    cases = [
        gradual("gradual", (first, second), (a[0], b[0], a[1], b[1]), 2 * size, generator),
        {"name": "abrupt", "parts": [part(first, a[0]), part(second, b[0])]},
        {"name": "returning", "parts": [part(first, a[0]), part(second, b[0]), part(first, a[1])]},
    ]
    for domain, texts in sorted(domains.items()):
        chosen = generator.sample(texts, min(arguments.documents, len(texts)))
        cases += [{"name": f"{domain} {number}", "domain": domain, "text": text[: 3 * size]}
                  for number, text in enumerate(chosen, 1)]
    with open(arguments.out, "w", encoding="utf-8") as out:
        for case in cases:
            out.write(json.dumps(case, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
