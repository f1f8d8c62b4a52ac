"""Trains a two-layer transformer with Tessera's attention and with PyTorch's, and compares them.

python examples/python/train_attention.py [--device cuda] [--steps 200] [--times 2048,8192] [--long 131072]
    [--json FILE] [--plot FILE.svg]

All runs start from the same weights and see the same batches, so their losses follow each other up to rounding. On a
GPU, which rounds to bf16, PyTorch's back ends differ from each other too: the distance between two of them is the
measure for ours. There it also prints the time of a step beside each of PyTorch's back ends, and the memory that a long
sequence takes forward and backward.
"""

import argparse
import contextlib
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import tessera
import tessera.torch

VOCABULARY = 64
CAUSAL = tessera.Mask.causal()
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


def ours(q, k, v, dropout_p: float = 0.0, seed: torch.Tensor | None = None) -> torch.Tensor:
    return tessera.torch.attention(q, k, v, CAUSAL, dropout_p=dropout_p, seed=seed)


def theirs(q, k, v) -> torch.Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, attend) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        x = x + self.out(attend(q, k, v).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Model(nn.Module):
    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(2))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids: torch.Tensor, attend) -> torch.Tensor:
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, attend)
        return self.head(x)


def make(options, width: int, heads: int, length: int) -> Model:
    torch.manual_seed(0)
    return Model(width, heads, length).to(options.device, options.dtype)


def batch(size: int, length: int, generator: torch.Generator) -> torch.Tensor:
    """Sequences that count in steps of their own: a model has to look back to find the step."""
    start = torch.randint(0, VOCABULARY, (size, 1), generator=generator)
    step = torch.randint(1, 8, (size, 1), generator=generator)
    return (start + step * torch.arange(length + 1)) % VOCABULARY


def train_step(model: Model, optimizer, ids: torch.Tensor, attend) -> torch.Tensor:
    loss = F.cross_entropy(model(ids[:, :-1], attend).flatten(0, 1).float(), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def curve(options, attend) -> list[float]:
    length = 128
    model, generator = make(options, 256, 4, length), torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return [
        train_step(model, optimizer, batch(8, length, generator).to(options.device), attend).item()
        for _ in range(options.steps)
    ]


def apart(one: list[float], other: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def compare_curves(options) -> dict[str, list[float]]:
    """The losses of every step, for each implementation of attention."""
    curves = {"ours": curve(options, ours)}
    for name in options.backends:
        with sdpa_kernel(BACKENDS[name]) if name else contextlib.nullcontext():
            curves[name or "PyTorch"] = curve(options, theirs)
    mine, peer = curves["ours"], curves[options.backends[0] or "PyTorch"]
    for step in range(0, options.steps, max(1, options.steps // 5)):
        print(f"step {step:4}  loss " + "  ".join(f"{name} {losses[step]:.4f}" for name, losses in curves.items()))
    tail = max(1, options.steps // 10)
    means = [sum(losses[-tail:]) / tail for losses in (mine, peer)]
    print(f"the last {tail} steps: {means[0]:.4f}, PyTorch's {means[1]:.4f}; at most {apart(mine, peer):.4f} apart")
    if len(options.backends) > 1:
        one, other = options.backends[:2]
        print(f"PyTorch's {one} and {other}: at most {apart(curves[one], curves[other]):.4f} apart")
    return curves


def draw(curves: dict[str, list[float]], path: str) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.2), layout="constrained")
    for (name, losses), style in zip(curves.items(), ("-", "--", ":"), strict=False):
        axes.plot(losses, style, label="Tessera" if name == "ours" else f"PyTorch, {name}")
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.set_yscale("log")
    axes.legend()
    figure.savefig(path)


def compare_dropout(options) -> None:
    """Whether the same seed gives the same gradients, and another seed others."""

    def gradient(number: int) -> torch.Tensor:
        torch.manual_seed(3)
        q, k, v = (torch.randn(2, 100, 4, 64, device=options.device, dtype=options.dtype) for _ in range(3))
        q.requires_grad_()
        ours(q, k, v, 0.2, torch.tensor([number])).square().sum().backward()
        return q.grad

    torch.use_deterministic_algorithms(True)
    same, other = torch.equal(gradient(7), gradient(7)), torch.equal(gradient(7), gradient(8))
    torch.use_deterministic_algorithms(False)
    print(f"dropout: the same seed gives {'the same' if same else 'OTHER'} gradients, "
          f"another one {'THE SAME' if other else 'others'}")


def stepper(options, length: int, attend):
    """Returns a function that makes one training step at 16k tokens, width 2048, heads of 128, and returns its ms."""
    model, generator = make(options, 2048, 16, length), torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = batch(max(1, 16384 // length), length, generator).to(options.device)

    def step() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        train_step(model, optimizer, ids, attend)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    return step


def compare_times(options) -> dict[int, dict[str, float]]:
    """Milliseconds of a step: medians; all implementations take turns."""
    result = {}
    for length in options.times:
        steps = {"ours": stepper(options, length, ours)}
        steps |= {name: stepper(options, length, theirs) for name in BACKENDS}
        times = {name: [] for name in steps}
        for _ in range(13):
            for name, step in steps.items():
                with sdpa_kernel(BACKENDS[name]) if name in BACKENDS else contextlib.nullcontext():
                    times[name].append(step())
        result[length] = {name: statistics.median(found[3:]) for name, found in times.items()}
        print(f"S {length}: ms of a step: " + ", ".join(f"{name} {ms:.2f}" for name, ms in result[length].items()))
    return result


def long_sequence(options) -> list[dict]:
    """Forward and backward of one long sequence: memory grows with its length, not with its square."""
    rows = []
    for length in (options.long // 2, options.long):
        tensors = [torch.randn(1, length, 8, 128, device=options.device, dtype=options.dtype) for _ in range(4)]
        for x in tensors[:3]:
            x.requires_grad_()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        free = torch.cuda.mem_get_info()[0]
        begin = time.perf_counter()
        ours(*tensors[:3]).backward(tensors[3])
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        finite = all(torch.isfinite(x.grad).all().item() for x in tensors[:3])
        peak = torch.cuda.max_memory_allocated() / 2**30
        taken = (free - torch.cuda.mem_get_info()[0]) / 2**30
        scores = 8 * length**2 * 2 / 2**30
        print(f"S {length}: forward and backward {seconds:.2f} s, torch's peak {peak:.2f} GiB, {taken:.2f} GiB taken "
              f"from the GPU (a matrix of scores: {scores:.0f}), gradients {'finite' if finite else 'NOT FINITE'}")
        rows.append({"length": length, "seconds": seconds, "peak_gib": peak, "taken_gib": taken, "finite": finite})
        del tensors
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--times", type=lambda text: [int(x) for x in text.split(",")], default=[2048, 8192])
    parser.add_argument("--long", type=int, default=131072)
    parser.add_argument("--json", help="writes every loss and time to this file")
    parser.add_argument("--plot", help="draws the losses (matplotlib)")
    options = parser.parse_args()
    on_gpu = options.device != "cpu"
    options.dtype = torch.bfloat16 if on_gpu else torch.float32
    options.backends = list(BACKENDS) if on_gpu else [""]
    results = {"curves": compare_curves(options)}
    compare_dropout(options)
    if on_gpu:
        results["ms_of_a_step"] = compare_times(options)
        results["long"] = long_sequence(options)
    else:
        print("no GPU: step times and the long sequence are left out")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file)
    if options.plot:
        draw(results["curves"], options.plot)


if __name__ == "__main__":
    main()
