"""Does the model need its first token? Streams far past the window, with and without attention sinks.

The cache has `window` entries. The first `sinks` entries stay for ever; of the others, the oldest is evicted. 0 sinks is plain window
eviction. Keys are cached before the rotary embedding and rotated by their place in the cache, as in Tessera. Only differences of places
matter to the rotary embedding, so a whole stream can be computed at once: ordinary keys keep their distance, and a sink is never further
away than the window is long. For comparison: the same text cut into fresh windows, as in training, and a cache that never evicts.

    python models/sinks.py --model models/stories --tokens models/stories-work/tokens.npz
"""
import argparse
import json
import math
import pathlib

import torch
import torch.nn.functional as F

from corpus import BEGIN_ID
from neox import rotary_table, rotate


def cached_attention(q, k, v, shape, sinks, window):
    """q, k, v [batch, heads, tokens, dim], not rotated. Each token sees the cache as it is at its time."""
    tokens, device, out = q.shape[2], q.device, []
    recent = window - sinks  # ordinary entries of a full cache
    cos, sin = rotary_table(shape, torch.arange(tokens, device=device))
    for a in range(0, tokens, shape.window):
        b, lo = min(a + shape.window, tokens), max(sinks, a - recent + 1)
        t, s, first = (torch.arange(*r, device=device) for r in ((a, b), (lo, b), (0, sinks)))
        place = t.clamp_max(window - 1)  # of the query in the cache
        at_sinks = rotate(q[:, :, a:b], cos[place], sin[place]) @ rotate(k[:, :, :sinks], cos[:sinks], sin[:sinks]).mT
        at_recent = rotate(q[:, :, a:b], cos[a:b], sin[a:b]) @ rotate(k[:, :, lo:b], cos[lo:b], sin[lo:b]).mT
        seen = torch.cat([first <= t[:, None], (s <= t[:, None]) & (s > t[:, None] - recent)], dim=1)
        score = torch.cat([at_sinks, at_recent], dim=-1) / math.sqrt(shape.head_dim)
        share = score.masked_fill(~seen, -math.inf).softmax(-1)
        out.append(share @ torch.cat([v[:, :, :sinks], v[:, :, lo:b]], dim=2))
    return torch.cat(out, dim=2)


@torch.no_grad()
def stream_loss(model, text, sinks, window):
    """text [batch, tokens] -> mean nll per training window of tokens."""
    body = model.gpt_neox
    x = body["embed_in"](torch.cat([torch.full_like(text[:, :1], BEGIN_ID), text[:, :-1]], dim=1))
    for layer in body["layers"]:
        q, k, v = layer.attention.split(layer.input_layernorm(x))
        attention = layer.attention.join(cached_attention(q, k, v, model.shape, sinks, window))
        x = x + attention + layer.mlp(layer.post_attention_layernorm(x))
    loss = [F.cross_entropy(model.embed_out(body["final_layer_norm"](x[:, a:a + model.shape.window])).flatten(0, 1),
                            text[:, a:a + model.shape.window].flatten()) for a in range(0, text.shape[1], model.shape.window)]
    return torch.stack(loss).tolist()


def report(model, held_out, windows=10, streams=16, sinks=(4, 1, 0)):
    """held_out: ids [tokens]. Prints and returns the perplexity of each training window of text; the last figure is the mean past the first."""
    model.eval()
    window = model.shape.window
    streams = min(streams, len(held_out) // (windows * window))
    text = held_out[:streams * windows * window].long().reshape(streams, -1)
    print(f"perplexity per {window} tokens, cache of {window}, {streams} streams of held-out text")
    fresh = text.unflatten(1, (-1, window))
    runs = [("fresh windows", lambda: [stream_loss(model, fresh[:, i], 0, window)[0] for i in range(windows)])]
    runs += [(f"{n} sinks" if n else "plain eviction", lambda n=n: stream_loss(model, text, n, window)) for n in sinks]
    runs += [("no eviction", lambda: stream_loss(model, text, 0, text.shape[1]))]
    rows = {}
    for name, run in runs:
        row = run()
        beyond = math.exp(sum(row[1:]) / (windows - 1))
        rows[name] = [math.exp(v) for v in row] + [beyond]
        print(f"{name:16}", *(f"{v:8.3f}" for v in rows[name][:-1]), f"  past the first: {beyond:.3f}", flush=True)
    return rows


def main():
    import numpy as np

    import export
    from neox import NeoX
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", type=pathlib.Path, required=True)
    p.add_argument("--tokens", type=pathlib.Path, required=True, help="tokens.npz, as train.py makes it")
    p.add_argument("--streams", type=int, default=16)
    p.add_argument("--windows", type=int, default=10)
    p.add_argument("--device", default="cpu")
    args = p.parse_args()
    model = NeoX(export.shape_of(json.loads((args.model / "config.json").read_text())))
    export.load_into(model, args.model)
    ids = torch.from_numpy(np.load(args.tokens)["held_out"].astype(np.int32))
    report(model.to(args.device), ids.to(args.device), args.windows, args.streams)


if __name__ == "__main__":
    main()
