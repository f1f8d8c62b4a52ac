#!/usr/bin/env python3
"""Trains Tessera's default model: a small GPT-NeoX that writes short stories. It takes two runs, of eight minutes and one on an H200:

    python models/train.py --data stories.txt.xz --out stories-first
    python models/train.py --out models/stories --work stories-first-work --start stories-first --sink-mass 0.6 --round-from 0 \\
        --batch 64 --rate 6e-4 --warm-up 50 --steps 816 --no-compile

Needs one GPU (a smaller --batch needs less memory), torch 2.11, numpy, tokenizers, safetensors. The text is stories separated by a line
<|story|>. In the last part of training, every Linear is rounded in the forward pass exactly as the file will store it (gradients pass
straight through), so the model learns to live in 4 bits. The second run teaches attention to rest on <|begin|>, as large models learn by
themselves. Each run writes its folder, reads it back, and measures the result. models/stories/README.md has the results, and those of
`--format float16` in the same space.
"""
import argparse
import json
import math
import pathlib
import time

import numpy as np
import torch

import corpus
import export
import sinks
from neox import NeoX, Shape

EVAL_BATCH = 64
SINK_WEIGHT = 4.0  # weight of the sink term in the loss; the term is zero once a head rests enough


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", help="stories.txt or stories.txt.xz")
    p.add_argument("--out", type=pathlib.Path, required=True, help="folder of the finished model")
    p.add_argument("--work", type=pathlib.Path, help="folder for tokenizer.json and tokens.npz, reused if there (default: OUT-work)")
    p.add_argument("--format", choices=("nvfp4", "float16"), default="nvfp4")
    p.add_argument("--vocab", type=int, default=3072)
    p.add_argument("--layers", type=int, default=7)
    p.add_argument("--hidden", type=int, default=512)
    p.add_argument("--heads", type=int, default=8)
    p.add_argument("--window", type=int, default=512)
    p.add_argument("--tied", action="store_true", help="the head shares the embedding's matrix")
    p.add_argument("--dropout", type=float, default=0.2)
    p.add_argument("--batch", type=int, default=128, help="windows per step")
    p.add_argument("--steps", type=int, default=9513)
    p.add_argument("--seconds", type=float, help="choose --steps from the measured speed so that training takes about this long")
    p.add_argument("--rate", type=float, default=1.5e-3, help="peak learning rate")
    p.add_argument("--warm-up", type=int, default=200, help="steps over which the rate rises")
    p.add_argument("--decay", type=float, default=0.2, help="weight decay of the matrices")
    p.add_argument("--round-from", type=float, default=0.7, help="fraction of training after which weights are rounded as stored")
    p.add_argument("--start", type=pathlib.Path, help="folder of a finished model to continue from")
    p.add_argument("--sink-mass", type=float, default=0.0,
                   help="least mean share of attention that each head is taught to rest on <|begin|> (except in the first layer)")
    p.add_argument("--reports", type=int, default=20, help="how often to validate")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--device", default="cuda")
    p.add_argument("--no-sinks", action="store_true", help="skip the streaming experiment at the end")
    return p.parse_args()


class Rounding:
    """Straight-through rounding: forward and backward see the stored values, the optimiser moves the full-precision ones."""

    def __init__(self, model, fmt):
        self.model, self.fmt = model, fmt
        self.params = list(model.parameters())
        self.kept = None

    @torch.no_grad()
    def __enter__(self):
        self.kept = [p.detach().clone() for p in self.params]
        for p, value in zip(self.params, export.stored_values(self.model, self.fmt).values()):
            p.copy_(value)

    @torch.no_grad()
    def __exit__(self, *_):
        for p, value in zip(self.params, self.kept):
            p.copy_(value)


@torch.no_grad()
def validate(model, windows):
    """-> mean nll per token over the held-out stories, in float32."""
    model.eval()
    ids, targets = windows.all()
    losses = [model(i, t) * len(i) for i, t in zip(ids.split(EVAL_BATCH), targets.split(EVAL_BATCH))]
    model.train()
    return (sum(losses) / len(ids)).item()


def optimiser(model, args):
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": args.decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=args.rate, betas=(0.9, 0.95), fused=args.device == "cuda")


def rate_at(step, args):
    """Warm up, then a cosine to zero."""
    if step < args.warm_up:
        return args.rate * (step + 1) / args.warm_up
    return args.rate * 0.5 * (1 + math.cos(math.pi * (step - args.warm_up) / max(1, args.steps - args.warm_up)))


def sink_term(model, target):
    """How far the heads' mean attention to <|begin|> stays below the target. The first layer sees bare tokens and needs no rest."""
    mass = torch.stack([layer.attention.begin_mass for layer in model.gpt_neox["layers"]])[1:]
    return torch.relu(target - mass).mean()


def steps_for(seconds, one_step, args):
    rounded = args.round_from == 0
    for _ in range(5):  # compiles
        one_step(0, rounded)
    torch.cuda.synchronize()
    start = time.time()
    for _ in range(20):
        one_step(0, rounded)
    torch.cuda.synchronize()
    per_step = (time.time() - start) / 20
    print(f"{per_step * 1e3:.1f} ms per step, {args.batch * args.window / per_step / 1e6:.2f} million tokens/s", flush=True)
    return int(seconds / (per_step * 1.05))


def train(model, data, args):
    """-> log rows (step, train loss, validation loss, rounded?)."""
    windows = corpus.Windows(data["train"], args.window, args.seed)
    held_out = corpus.Windows(data["held_out"], args.window, args.seed)
    compiled = model if args.no_compile else torch.compile(model)
    adam = optimiser(model, args)
    rounding = Rounding(model, args.format)

    for layer in model.gpt_neox["layers"]:
        layer.attention.watch_begin = args.sink_mass > 0

    def one_step(rate, rounded=False, target=0.0):
        ids, targets = windows.draw(args.batch)
        if rounded:
            rounding.__enter__()
        with torch.autocast(args.device, torch.bfloat16):
            loss = compiled(ids, targets)
        (loss + SINK_WEIGHT * sink_term(model, target) if args.sink_mass else loss).backward()
        if rounded:
            rounding.__exit__()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in adam.param_groups:
            group["lr"] = rate
        adam.step()
        adam.zero_grad(set_to_none=True)
        return loss.detach()

    if args.seconds:
        args.steps = steps_for(args.seconds, one_step, args)  # at rate 0: these steps change only Adam's averages
    rows, recent, start = [], [], time.time()
    every = max(1, args.steps // args.reports)
    round_from = int(args.steps * args.round_from)
    for step in range(args.steps):
        target = args.sink_mass * min(1.0, step / (0.3 * args.steps))  # grows over the first 30%, so that the rest can follow
        recent.append(one_step(rate_at(step, args), step >= round_from, target))
        if (step + 1) % every == 0 or step + 1 == args.steps:
            rounded = step >= round_from
            if rounded:
                with rounding:
                    held = validate(model, held_out)
            else:
                held = validate(model, held_out)
            rows.append((step + 1, torch.stack(recent).mean().item(), held, rounded))
            recent = []
            if args.sink_mass:
                print("attention on <|begin|> by layer:",
                      *(f"{layer.attention.begin_mass.mean():.2f}" for layer in model.gpt_neox["layers"]), flush=True)
            print(f"step {step + 1:6} / {args.steps}  train {rows[-1][1]:.4f}  held out {held:.4f}"
                  f"{'  as stored' if rounded else ''}  {time.time() - start:.0f} s", flush=True)
    return rows


@torch.no_grad()
def sample(model, tokenizer, prompt, seed, temperature=0.8, tokens=220):
    from tokenizers import Tokenizer
    tok, gen = Tokenizer.from_file(str(tokenizer)), torch.Generator(next(model.parameters()).device).manual_seed(seed)
    ids = torch.tensor([tok.encode(prompt).ids], device=gen.device)
    for _ in range(tokens):
        odds = (model(ids)[0, -1] / temperature).softmax(-1)
        ids = torch.cat([ids, torch.multinomial(odds, 1, generator=gen).unsqueeze(0)], dim=1)
        if ids[0, -1] == corpus.STORY_ID:
            break
    return tok.decode(ids[0].tolist())


def main():
    args = arguments()
    torch.manual_seed(args.seed)
    tokenizer, tokens = corpus.prepare(args.data, args.work or args.out.with_name(args.out.name + "-work"), args.vocab)
    raw = np.load(tokens)
    data = {k: torch.from_numpy(raw[k].astype(np.int32)).to(args.device) for k in ("train", "held_out")}
    shape = Shape(vocab=args.vocab, layers=args.layers, hidden=args.hidden, heads=args.heads, window=args.window, tied=args.tied,
                  dropout=args.dropout)
    model = NeoX(shape)
    if args.start:
        export.load_into(model, args.start)
    model.to(args.device)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters, {len(data['train']):,} training tokens, {len(data['held_out']):,} held out", flush=True)
    start = time.time()
    rows = train(model, data, args)
    seconds = time.time() - start

    held_out = corpus.Windows(data["held_out"], args.window, args.seed)
    full_precision = validate(model, held_out)
    size = export.write(model, tokenizer, args.out, args.format)
    export.load_into(model, args.out)
    stored = validate(model, held_out)
    per_byte = stored / math.log(2) * len(data["held_out"]) / int(raw["held_out_bytes"])
    result = {"arguments": {k: str(v) for k, v in vars(args).items()}, "parameters": parameters, "bytes": size, "seconds": seconds,
              "training_tokens_seen": args.steps * args.batch * args.window, "held_out_full_precision": full_precision,
              "held_out_stored": stored, "perplexity_stored": math.exp(stored), "bits_per_byte_stored": per_byte, "log": rows}
    print(f"held out: {full_precision:.4f} before rounding, {stored:.4f} as stored (perplexity {math.exp(stored):.3f}, "
          f"{per_byte:.4f} bits per byte), {size:,} bytes, {seconds:.0f} s", flush=True)
    model.eval()
    for seed, prompt in enumerate(("Once upon a time", "Lily and Tom", "The big dog")):
        print(f"--- {sample(model, tokenizer, prompt, seed)}\n", flush=True)
    (args.out / "training.json").write_text(json.dumps(result, indent=1) + "\n")
    if not args.no_sinks:
        result["sinks"] = sinks.report(model, data["held_out"])
    (args.out / "training.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
