"""Predicts the time of a token and of a prompt on several GPUs and machines, from measured times of one GPU.

python bench/scaling.py                                     the tables of docs/SCALING.md
python bench/scaling.py --check ONE.json TWO.json           the same formula against runs of bench_parallel

Everything it prints is a prediction, but for the column of one GPU and for what --check reads. The formulas and what
they leave out are in docs/SCALING.md.
"""

import argparse
import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """A model, and what one H200 was measured to do with it (docs/results/h200/decode.md, 2026-11-17)."""

    name: str
    layers: int
    hidden: int
    kv_width: int  # numbers of keys, and of values, of a token and layer
    sums: int  # all_reduces of a layer
    token_ms: dict[str, float]  # one token, CUDA graphs off: several processes do not replay them
    floor_ms: dict[str, float]  # of it: reading the weights once
    prompt_tokens_per_s: float  # f16, 2048 tokens


SHAPES = [
    Shape("Pythia-2.8B", 32, 2560, 2560, 1, {"f16": 2.346, "nvfp4": 1.515}, {"f16": 1.28, "nvfp4": 0.37}, 78600),
    Shape("Llama of 8B", 32, 4096, 1024, 2, {"f16": 5.391, "nvfp4": 2.279}, {"f16": 3.56, "nvfp4": 1.01}, 39700),
]


@dataclass(frozen=True)
class Link:
    """Between two ranks. Latencies are assumptions; bandwidths are the makers' figures, one direction."""

    name: str
    latency_us: float  # of one small all_reduce, for each doubling of the ranks
    gb_per_s: float


NVLINK = Link("NVLink, 900 GB/s both ways", 6.0, 450.0)
NETWORK = Link("400 Gb/s", 15.0, 50.0)


def doublings(ranks: int) -> int:
    return max(0, (ranks - 1).bit_length())


def all_reduce_ms(link: Link, ranks: int, size: float) -> float:
    """Latency, and 2 (n - 1) / n of the bytes over the link."""
    if ranks == 1:
        return 0.0
    return 1e-3 * link.latency_us * doublings(ranks) + 2 * (ranks - 1) / ranks * size / link.gb_per_s * 1e-6


def tensor_token_ms(shape: Shape, weights: str, link: Link, ranks: int) -> float:
    """The weights are read in n parts at the same time. What is not reading (launches, norms, attention) stays."""
    floor = shape.floor_ms[weights]
    sums = shape.layers * shape.sums + 1  # and the embedding
    return shape.token_ms[weights] - floor + floor / ranks + sums * all_reduce_ms(link, ranks, 2 * shape.hidden)


def attention_share(shape: Shape, tokens: int) -> float:
    """Of the work of a causal prompt: 2 n^2 hidden against 24 n hidden^2 for each layer, about."""
    return 2 * tokens * shape.hidden / (2 * tokens * shape.hidden + 24 * shape.hidden**2)


def prompt_ms(shape: Shape, tokens: int) -> float:
    """One GPU: the measured rate of 2048 tokens; attention grows with the length."""
    linear = tokens / shape.prompt_tokens_per_s * 1e3 * (1 - attention_share(shape, 2048))
    return linear / (1 - attention_share(shape, tokens))


def tensor_prompt_ms(shape: Shape, link: Link, ranks: int, tokens: int) -> float:
    sums = shape.layers * shape.sums + 1
    return prompt_ms(shape, tokens) / ranks + sums * all_reduce_ms(link, ranks, 2 * shape.hidden * tokens)


def context_prompt_ms(shape: Shape, link: Link, ranks: int, tokens: int) -> float:
    """A layer's keys and values go around while its attention is computed; the longer of the two counts."""
    whole = prompt_ms(shape, tokens)
    attention = whole * attention_share(shape, tokens) / shape.layers / ranks
    block = 2 * 2 * shape.kv_width * tokens / ranks  # bytes: keys and values in f16
    ring = (ranks - 1) * (1e-3 * link.latency_us + block / link.gb_per_s * 1e-6)
    rest = whole * (1 - attention_share(shape, tokens)) / ranks
    return rest + shape.layers * max(attention, ring)


def print_tables() -> None:
    print("| model | weights | GPUs of one machine: | 1 (measured) | 2 | 4 | 8 |\n|---|---|---|---|---|---|---|")
    for shape in SHAPES:
        for weights in shape.token_ms:
            row = [f"{tensor_token_ms(shape, weights, NVLINK, n):.2f}" for n in (1, 2, 4, 8)]
            print(f"| {shape.name} | {weights} | ms a token, tensor | {' | '.join(row)} |")
    print("\n| model | prompt | scheme | 1 GPU | 8 GPUs | 4 machines | 16 machines |\n|---|---|---|---|---|---|---|")
    for shape in SHAPES:
        for tokens in (8192, 131072, 1048576):
            for scheme, predict in (("tensor", tensor_prompt_ms), ("context", context_prompt_ms)):
                row = [prompt_ms(shape, tokens), predict(shape, NVLINK, 8, tokens)]
                row += [predict(shape, NETWORK, n, tokens) for n in (4, 16)]
                print(f"| {shape.name} | {tokens} | {scheme} | {' | '.join(f'{ms / 1e3:.2f} s' for ms in row)} |")


def check(one_file: str, two_file: str) -> None:
    """Runs of bench_parallel here: is the time of n ranks that of one, divided, as the formulas say?"""
    with open(one_file) as a, open(two_file) as b:
        one, many = json.load(a), json.load(b)
    key = "ms_per_token" if one["what"] == "generate" else "ms"
    predicted = one[key] / many["ranks"]
    print(f"{one['what']} {one.get('weights', '')}: one rank {one[key]:.2f} ms; {many['ranks']} ranks predicted "
          f"{predicted:.2f} ms, measured {many[key]:.2f} ms ({many[key] / predicted - 1:+.0%})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", nargs=2, metavar=("ONE", "MANY"), help="reports of bench_parallel, each one object")
    options = parser.parse_args()
    if options.check:
        check(*options.check)
    else:
        print_tables()


if __name__ == "__main__":
    main()
