"""A linear layer in every format: its size, its error, and its time for one row beside PyTorch's.

python examples/python/quantize_a_linear.py [--in-features N] [--out-features N]
"""

import argparse
import time

import torch
from torch import nn

import tessera
import tessera.torch


def milliseconds(layer: nn.Module, x: torch.Tensor, repeats: int = 5) -> float:
    """The median of a few runs."""
    layer(x)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        layer(x)
        times.append(1000 * (time.perf_counter() - start))
    return sorted(times)[repeats // 2]


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--in-features", type=int, default=1024)
    parser.add_argument("--out-features", type=int, default=4096)
    options = parser.parse_args()

    torch.manual_seed(0)
    dense = nn.Linear(options.in_features, options.out_features)
    x = torch.randn(1, options.in_features)
    expected, plain = dense(x), milliseconds(dense, x)
    megabytes = dense.weight.nbytes / 1e6
    print(f"{'format':8} {'MB':>8} {'rel. error':>11} {'ms':>8} {'faster':>7}")
    print(f"{'f32':8} {megabytes:8.2f} {0:11.5f} {plain:8.3f} {1:6.2f}x")
    for format in tessera.formats():
        layer = tessera.torch.FusedFP4Linear.from_linear(dense, format=format.name)
        error = ((layer(x) - expected).norm() / expected.norm()).item()
        took = milliseconds(layer, x)
        print(f"{format.name:8} {layer.packed.nbytes / 1e6:8.2f} {error:11.5f} {took:8.3f} {plain / took:6.2f}x")


if __name__ == "__main__":
    main()
