"""Trains a two-layer model whose attention and norms are Tessera's, then packs it to 4 bits.

python examples/python/train_tiny.py [--steps N]
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

from tessera.torch import TransformerBlock

VOCABULARY, WIDTH, LENGTH = 32, 64, 16


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(TransformerBlock(WIDTH, 2, 2 * WIDTH, rotary_dims=32) for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batch(generator: torch.Generator) -> torch.Tensor:
    """Sequences that count in steps: 3, 5, 7, ..."""
    start = torch.randint(0, VOCABULARY, (16, 1), generator=generator)
    step = torch.randint(1, 5, (16, 1), generator=generator)
    return (start + step * torch.arange(LENGTH + 1)) % VOCABULARY


def loss_of(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    torch.manual_seed(0)
    model, generator = Tiny(), torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(options.steps):
        loss = loss_of(model, batch(generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == options.steps - 1:
            print(f"step {step:4}  loss {loss.item():.4f}")

    model.eval()
    test = batch(generator)
    with torch.no_grad():
        dense = loss_of(model, test).item()
        for block in model.blocks:
            block.quantize("nvfp4")
        print(f"dense loss {dense:.4f}, nvfp4 loss {loss_of(model, test).item():.4f}")


if __name__ == "__main__":
    main()
