"""What the Python package costs and gains on a CPU: the time of a call beyond the op itself, and a packed layer's time.

    build/python-venv/bin/python bench/python/bars.py [--rounds N]

The time of the op itself is what its trace says; the rest of a call, checks of the library included, is overhead. A
figure is the median of the rounds' fastest calls, so that other programs on the machine count little.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

import tessera
import tessera.torch as tt


def microseconds(call: Callable[[], object], rounds: int, calls: int = 300) -> float:
    """The median over rounds of the fastest of a few bursts of calls."""
    call()
    medians = []
    for _ in range(rounds):
        bursts = []
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(calls // 5):
                call()
            bursts.append((time.perf_counter() - start) / (calls // 5))
        medians.append(1e6 * min(bursts))
    return statistics.median(medians)


def op_microseconds(call: Callable[[], object], calls: int = 500) -> float:
    """The op alone, by its trace: the fastest of a few hundred calls."""
    trace = tessera.default_context().trace
    best = float("inf")
    trace.enable()
    for _ in range(calls):
        trace.clear()
        call()
        best = min(best, sum(entry.seconds for entry in trace.entries))
    trace.enable(False)
    trace.clear()
    return 1e6 * best


def overheads(rounds: int) -> None:
    f32 = np.float32
    x, w, out = np.ones((1, 64), f32), np.ones(64, f32), np.empty((1, 64), f32)
    q = np.ones((1, 1, 4, 64), f32)
    matrix, small = np.ones((16, 64), f32), np.empty((1, 16), f32)
    layer = tt.FusedFP4Linear(64, 16)
    tx, tw, tq = torch.ones(1, 64), torch.ones(64), torch.ones(1, 1, 4, 64)
    causal = tessera.Mask.causal().spec()
    recorded = tq.clone().requires_grad_()

    def record() -> None:
        with torch.enable_grad():
            tt.attention(recorded, recorded, recorded, causal)

    cases = {
        "numpy softmax(x, out)": (lambda: tessera.softmax(x=x, out=out), 6),
        "numpy rms_norm(x, weight, out)": (lambda: tessera.rms_norm(x=x, weight=w, out=out), 6),
        "numpy linear(x, weight, out)": (lambda: tessera.linear(x=x, weight=matrix, out=small), 6),
        "numpy attention(q, k, v)": (lambda: tessera.attention(q=q, k=q, v=q), 6),
        "torch tensors, tessera.softmax(x)": (lambda: tessera.softmax(x=tx), 6),
        "torch operator rms_norm": (lambda: tt.rms_norm(tx, tw), 15),
        "torch operator attention": (lambda: tt.attention(tq, tq, tq, causal), 15),
        "torch operator linear (FusedFP4Linear)": (lambda: layer(tx), 15),
        "torch operator attention, for autograd": (record, "-"),
    }
    print(f"{'call':40} {'whole us':>9} {'op us':>7} {'overhead us':>12} {'bar':>4}")
    with torch.no_grad():
        for name, (call, bar) in cases.items():
            whole, op = microseconds(call, rounds), op_microseconds(call)
            print(f"{name:40} {whole:9.2f} {op:7.2f} {whole - op:12.2f} {bar:>4}")


@torch.no_grad()
def packed_layer(rounds: int) -> None:
    torch.manual_seed(0)
    dense, x = nn.Linear(4096, 14336), torch.randn(1, 4096)
    packed = tt.FusedFP4Linear.from_linear(dense)
    error = ((packed(x) - dense(x)).norm() / dense(x).norm()).item()
    context = tessera.default_context()
    times: dict[str, list[float]] = {"torch f32": [], "nvfp4, exact": [], "nvfp4, int8 activations": []}
    for _ in range(rounds):  # in turn, so that a busy machine slows all of them
        for name, layer in (("torch f32", dense), ("nvfp4, exact", packed), ("nvfp4, int8 activations", packed)):
            context.activations = "int8" if "int8" in name else "exact"
            layer(x)
            start = time.perf_counter()
            for _ in range(3):
                layer(x)
            times[name].append((time.perf_counter() - start) / 3)
    context.activations = "exact"
    base = statistics.median(times["torch f32"])
    print(f"\nLinear(4096, 14336), one row, {torch.get_num_threads()} torch and {context.threads} tessera threads; "
          f"relative error {error:.4f}")
    for name, values in times.items():
        median = statistics.median(values)
        ratios = [a / b for a, b in zip(times["torch f32"], values, strict=True)]
        print(f"{name:26} {1000 * median:8.2f} ms  {base / median:5.2f}x  (by round: {statistics.median(ratios):.2f}x)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    overheads(options.rounds)
    packed_layer(options.rounds)


if __name__ == "__main__":
    main()
