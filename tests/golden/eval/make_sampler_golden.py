"""Writes sampler.json: draws of CPython's random.Random(seed).sample, one generator advanced through several draws.

Run with any CPython 3.11 or later: python3 make_sampler_golden.py > sampler.json
"""

import json
import random

# (seed, pool size, number drawn): both methods of sample(), both sides of their threshold, the whole pool.
CASES = [
    (1234, 7473, 5), (1234, 7473, 6), (1234, 21, 5), (1234, 22, 5), (1234, 20, 3), (1234, 1, 1), (1234, 5, 5),
    (1234, 85, 6), (1234, 86, 6), (1234, 277, 25), (1234, 278, 25), (1234, 40398, 10), (1234, 2251, 1),
    (0, 1000, 8), (1, 100, 10), (4294967295, 100, 10), (4294967296, 100, 10), (1311768467463790320, 3000, 32),
]

cases = []
for seed, pool, count in CASES:
    generator = random.Random(seed)
    draws = [generator.sample(range(pool), count) for _ in range(4)]
    cases.append({"seed": seed, "pool": pool, "count": count, "draws": draws})
first_words = [random.Random(1234).getrandbits(32)]
print(json.dumps({"first_word_of_1234": first_words[0], "cases": cases}))
