#!/usr/bin/env python3
"""Independent implementation of smoe's SplitMix64, mix_seeds and Permutation.

Prints the golden numbers of tests/core/random_test.cpp. Needs nothing but Python.
"""

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15


def mix(value):
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def stream(seed, count):
    return [mix((seed + GAMMA * (i + 1)) & MASK) for i in range(count)]


def mix_seeds(*numbers):
    state = 0
    for number in numbers:
        state = mix((state + number + GAMMA) & MASK)
    return state


def permutation(size, seed):
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    half_mask = (1 << half_bits) - 1
    keys = stream(seed, 4)

    def encrypt(value):
        left, right = value >> half_bits, value & half_mask
        for key in keys:
            left, right = right, left ^ (mix((right + key) & MASK) & half_mask)
        return (left << half_bits) | right

    def walk(index):
        value = encrypt(index)
        while value >= size:
            value = encrypt(value)
        return value

    return walk


if __name__ == "__main__":
    print("SplitMix64(1234567):", stream(1234567, 5))
    print("mix_seeds:", mix_seeds(0, 0, 0), mix_seeds(1, 2, 3), mix_seeds(3, 2, 1))
    for size, seed in [(10, 1), (1000, 42), (1 << 40, 7)]:
        element = permutation(size, seed)
        print(f"Permutation({size}, {seed}):", [element(i) for i in range(10)])
