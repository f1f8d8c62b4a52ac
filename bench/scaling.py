"""Predicts the time of a token and of a prompt on several GPUs and machines, from measured times of one GPU.

python bench/scaling.py                                     the tables of docs/SCALING.md
python bench/scaling.py --check ONE.json TWO.json           the same formula against runs of bench_parallel

Everything it prints is a prediction, except for the column of one GPU and for what --check reads. The formulas and what
they leave out are in docs/SCALING.md.
"""

import argparse
import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """A model, and its measured times on one H200 (docs/results/h200/decode.md)."""

    name: str
    layers: int
    hidden: int
    kv_width: int  # numbers of keys, and of values, of a token and layer
    sums: int  # all_reduces of a layer
    token_ms: dict[str, float]  # one token at its fastest: graphs, and one kernel for all layers if there is one
    ops_ms: dict[str, float]  # op by op, as CUDA graphs: what runs after more than 3072 tokens
    rank_ms: dict[str, float]  # op by op, each launched by itself: what several processes run
    floor_ms: dict[str, float]  # of it: reading the weights once
    prompt_tokens_per_s: float  # f16, 2048 tokens

    @property
    def cache_bytes(self) -> int:
        """Of one token, in f16."""
        return 2 * 2 * self.layers * self.kv_width


# A token of context 128: token_ms on the tree after 91ca5ba, ops_ms and floor_ms at d84dabf. Without graphs no model has
# been measured since its ops became faster: rank_ms takes the ratio that graphs had before.
SHAPES = [
    Shape(
        name="Pythia-2.8B",
        layers=32,
        hidden=2560,
        kv_width=2560,
        sums=1,
        token_ms={"f16": 1.483, "nvfp4": 0.720},
        ops_ms={"f16": 2.068, "nvfp4": 1.329},
        rank_ms={"f16": 2.068 * 2.346 / 2.237, "nvfp4": 1.329 * 1.515 / 1.392},
        floor_ms={"f16": 1.262, "nvfp4": 0.364},
        prompt_tokens_per_s=95200,
    ),
    Shape(
        name="Llama of 8B",
        layers=32,
        hidden=4096,
        kv_width=1024,
        sums=2,
        token_ms={"f16": 4.020, "nvfp4": 1.625},
        ops_ms={"f16": 4.246, "nvfp4": 2.068},
        rank_ms={"f16": 4.246 * 5.391 / 5.254, "nvfp4": 2.068 * 2.279 / 2.150},
        floor_ms={"f16": 3.556, "nvfp4": 1.005},
        prompt_tokens_per_s=42400,
    ),
]
MEMORY_GB = 141.0  # of an H200
WEIGHT_GB_PER_S = 4300.0  # at which the floors were counted
CACHE_GB_PER_S = 3310.0  # cuda.split over 16384 keys, a batch of 8 (docs/results/h200/attention.md)
KERNEL_MS = 3.0e-3  # a kernel with almost nothing to do (docs/results/h200/decode.md)


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
    """The weights are read in n parts at the same time. The time for all else (launches, norms, attention) stays."""
    if ranks == 1:
        return shape.token_ms[weights]
    floor = shape.floor_ms[weights]
    sums = shape.layers * shape.sums + 1  # and the embedding
    return shape.rank_ms[weights] - floor + floor / ranks + sums * all_reduce_ms(link, ranks, 2 * shape.hidden)


def context_token_ms(shape: Shape, weights: str, link: Link, ranks: int, context: int) -> float | None:
    """Every rank reads all weights, and 1/n of the cache. None: a rank has no room for its part."""
    cache = shape.cache_bytes * context / ranks
    if 1e-9 * cache + 1e-3 * shape.floor_ms[weights] * WEIGHT_GB_PER_S > MEMORY_GB:
        return None
    attention = 1e-6 * cache / CACHE_GB_PER_S
    if ranks == 1:
        return shape.ops_ms[weights] + attention
    # A layer gathers the partial results of all ranks and their log-sum-exps, and merges them one by one.
    gathered = 2 * shape.hidden * (ranks - 1)
    gather = 2 * 1e-3 * link.latency_us * doublings(ranks) + 1e-6 * gathered / link.gb_per_s
    return shape.rank_ms[weights] + attention + shape.layers * (gather + (ranks + 2) * KERNEL_MS)


def attention_share(shape: Shape, tokens: int) -> float:
    """Attention's share of the work of a causal prompt: about 2 n^2 hidden against 24 n hidden^2 for each layer."""
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
    print_tensor_tokens()
    print_context_tokens()
    print_prompts()


def print_head(*columns: str) -> None:
    print(f"\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|")


GPUS, MACHINES = (2, 4, 8), (2, 4, 8, 16)


def places(machines: tuple[int, ...]) -> list[tuple[Link, int]]:
    """GPUs of one machine, then machines of one GPU each."""
    return [(NVLINK, n) for n in GPUS] + [(NETWORK, n) for n in machines]


def names(first: str, machines: tuple[int, ...]) -> list[str]:
    return [first] + [f"{n} GPUs" for n in GPUS] + [f"{n} machines" for n in machines]


def print_tensor_tokens() -> None:
    print_head("model", "weights", *names("1 GPU (measured)", MACHINES))
    for shape in SHAPES:
        for weights, measured in shape.token_ms.items():
            row = [measured] + [tensor_token_ms(shape, weights, link, n) for link, n in places(MACHINES)]
            print(f"| {shape.name} | {weights} | {' | '.join(f'{ms:.2f}' for ms in row)} |")


def print_context_tokens() -> None:
    print_head("model", "weights", "tokens before it", *names("1 GPU", MACHINES))
    for shape in SHAPES:
        for weights in shape.token_ms:
            for context in (131072, 1048576):
                row = [
                    context_token_ms(shape, weights, link, n, context) for link, n in [(NVLINK, 1), *places(MACHINES)]
                ]
                cells = " | ".join("no room" if ms is None else f"{ms:.1f}" for ms in row)
                print(f"| {shape.name} | {weights} | {context} | {cells} |")


def print_prompts() -> None:
    print_head("model", "prompt", "scheme", *names("1 GPU", (4, 16)))
    for shape in SHAPES:
        for tokens in (8192, 131072, 1048576):
            for scheme, predict in (("tensor", tensor_prompt_ms), ("context", context_prompt_ms)):
                row = [prompt_ms(shape, tokens)] + [predict(shape, link, n, tokens) for link, n in places((4, 16))]
                print(f"| {shape.name} | {tokens} | {scheme} | {' | '.join(f'{ms / 1e3:.2f} s' for ms in row)} |")


def predicted_ms(one: dict, many: dict) -> float:
    """The time of n ranks, from that of one rank and of a sum over the ranks. Ring attention is divided as a whole.

    The ranks of one machine share its memory: a rank's part takes no less than reading it while the others read theirs.
    """
    if one["what"] != "generate":
        return one["ms"] / many["ranks"]
    split = one["split_ms"]
    part = max(split / many["ranks"], 1e-6 * many["token_bytes"] / many["read_gb_per_s"])
    return one["ms_per_token"] - split + part + 1e-3 * many["sum_us"] * many["sums"]


def check(one_file: str, two_file: str) -> None:
    """Compares runs of bench_parallel on this machine with the formula."""
    with open(one_file) as a, open(two_file) as b:
        one, many = json.load(a), json.load(b)
    key = "ms_per_token" if one["what"] == "generate" else "ms"
    predicted = predicted_ms(one, many)
    print(
        f"{one['what']} {one.get('weights', '')}: one rank {one[key]:.2f} ms; {many['ranks']} ranks predicted "
        f"{predicted:.2f} ms, measured {many[key]:.2f} ms ({many[key] / predicted - 1:+.0%})"
    )


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
