#!/usr/bin/env python3
"""Compares single ops on a GPU with the PyTorch launches that each replaces, in one run: norms with residuals, rotary embedding
with the write to the cache, argmax, top-k and sampling.

    python bench/peers/compare_elementwise.py --out docs/results/h200

Writes elementwise_table.md, elementwise.csv and a plot. PyTorch runs eagerly, captured in a graph: x + r0 + r1 + r2 and
layer_norm or rms_norm; rotary as transformers computes it and index_copy_ into the cache; argmax; topk; sampling as transformers
does it. All tensors are bf16, except logits, which are f32.
"""
import argparse
import pathlib
import sys

import gpu_table as table

COLUMNS = ["op", "shape", "us", "floor", "torch_us", "torch_launches", "apart_us", "tb_per_s", "rel", "kernel"]
HEADS = ["op", "shape", "us", "floor", "of the bandwidth", "PyTorch", "ratio", "Tessera's own launches apart", "kernel"]
ROTARY = {"Pythia-2.8B": (32, 32, 80, 20), "Llama-8B": (32, 8, 128, 128)}  # heads, kv heads, dim, rotated dims


# ---- PyTorch -----------------------------------------------------------------------------------------------------------

def noise(*shape, dtype=None):
    import torch

    return torch.randn(*shape, device="cuda", dtype=dtype or torch.bfloat16)


def torch_norm(row):
    """Microseconds, and the number of launches."""
    import torch

    rows, width, n = row["rows"], row["width"], row["residuals"]
    weight, bias = noise(width), noise(width)
    sets = [[noise(rows, width) for _ in range(1 + n)] for _ in range(table.copies_beyond_cache(rows * width * 2 * (2 + n), 64))]

    def norm(tensors):
        x = tensors[0]
        for residual in tensors[1:]:
            x = x + residual
        if row["op"] == "rms_norm":
            return torch.nn.functional.rms_norm(x, (width,), weight)
        return torch.nn.functional.layer_norm(x, (width,), weight, bias)

    return table.microseconds([lambda s=s: norm(s) for s in sets]), 1 + n


def torch_rotary(row):
    import torch

    heads, kv_heads, dim, dims = ROTARY[row["model"]]
    tokens = row["tokens"]
    slots = torch.arange(tokens, device="cuda")
    angles = torch.outer(slots.float(), 10000.0 ** (-torch.arange(0, dims, 2, device="cuda") / dims))
    cos, sin = (f(torch.cat((angles, angles), -1)).to(torch.bfloat16)[:, None] for f in (torch.cos, torch.sin))

    def rotate(x):
        rotated, rest = x[..., :dims], x[..., dims:]
        first, second = rotated.chunk(2, -1)
        out = rotated * cos + torch.cat((-second, first), -1) * sin  # five launches
        return torch.cat((out, rest), -1) if rest.shape[-1] else out

    def run(qkv, k_cache, v_cache):
        q, k, v = qkv.split((heads, kv_heads, kv_heads), 1)
        q, k = rotate(q), rotate(k)
        k_cache.index_copy_(0, slots, k)
        v_cache.index_copy_(0, slots, v)
        return q

    launches = 2 * (5 + (dims < dim)) + 2
    sets = [(noise(tokens, heads + 2 * kv_heads, dim), noise(tokens, kv_heads, dim), noise(tokens, kv_heads, dim))
            for _ in range(table.copies_beyond_cache(tokens * (heads + 2 * kv_heads) * dim * 2, 64))]
    return table.microseconds([lambda s=s: run(*s) for s in sets]), launches


def torch_select(row):
    import torch

    rows, width, k = row["rows"], row["width"], row["k"]
    sets = [noise(rows, width, dtype=torch.float32) for _ in range(table.copies_beyond_cache(rows * width * 4, 32))]
    call = (lambda x: x.argmax(-1)) if k == 1 else (lambda x: x.topk(k))
    return table.microseconds([lambda x=x: call(x) for x in sets]), None


def torch_sample(row):
    """As the logits processors and the sampling of transformers do it: the whole vocabulary is sorted."""
    import torch

    def sample(x):
        if row["temperature"] == 0:
            return x.argmax(-1)
        x = x / row["temperature"]
        if row["top_k"]:
            x = x.masked_fill(x < x.topk(row["top_k"]).values[..., -1:], -torch.inf)
        if row["top_p"] < 1:
            ordered, at = x.sort(descending=False)
            drop = ordered.softmax(-1).cumsum(-1) <= 1 - row["top_p"]
            drop[..., -1:] = False
            x = x.masked_fill(drop.scatter(1, at, drop), -torch.inf)
        p = x.softmax(-1)
        if row["min_p"]:
            p = p.masked_fill(p < row["min_p"] * p.max(-1, keepdim=True).values, 0)
        return p.multinomial(1)

    sets = [3 * noise(1, row["width"], dtype=torch.float32) for _ in range(32)]
    return table.microseconds([lambda x=x: sample(x) for x in sets]), None


PEERS = {"layer_norm": torch_norm, "rms_norm": torch_norm, "rotary_append": torch_rotary, "argmax": torch_select, "top_k": torch_select,
         "sample": torch_sample}


def shape_of(row):
    if row["op"] == "rotary_append":
        heads, kv_heads, dim, dims = ROTARY[row["model"]]
        return f"{row['tokens']} tokens, heads {heads} + 2 x {kv_heads} of {dim}, {dims} rotated"
    if row["op"] == "sample":
        return f"[1, {row['width']}], {row['mode']}"
    more = f", {row['residuals']} residuals" if "residuals" in row else f", k = {row['k']}" if row["op"] == "top_k" else ""
    return f"[{row['rows']}, {row['width']}]{more}"


# ---- the table ---------------------------------------------------------------------------------------------------------

def as_cells(r):
    launches = f" ({r['torch_launches']} launches)" if r.get("torch_launches") else ""
    share = f"{100 * r['floor'] / r['us']:.0f}%" if r["floor"] > 1 else "-"  # below a microsecond the share means nothing
    return [r["op"], r["shape"], f"{r['us']:.2f}", f"{r['floor']:.2f}", share, f"{r['torch_us']:.2f}{launches}",
            f"{r['torch_us'] / r['us']:.2f}x", table.cell(r.get("apart_us"), 2), r.get("kernel", "-")]


def write(rows, ceilings, a):
    a.out.mkdir(parents=True, exist_ok=True)
    head = table.heading("compare_elementwise.py", f"bf16, logits f32; microseconds. The floor is bytes over {ceilings['tb_per_s']} TB/s, a large copy "
                         "in the same run.")
    (a.out / "elementwise_table.md").write_text(table.markdown(head, HEADS, map(as_cells, rows)), encoding="utf-8")
    table.write_csv(a.out / "elementwise.csv", COLUMNS, rows)
    bars = []
    for r in rows:
        if r["op"] in ("layer_norm", "rotary_append") and "16384" not in r["shape"]:
            bars.append((f"{r['op']} {r['shape'].split(', heads')[0]}", r["us"], table.plot.COLOURS["accent"]))
            bars.append(("PyTorch", round(r["torch_us"], 2), table.plot.COLOURS["plain"]))
    (a.out / "elementwise.svg").write_text(table.plot.draw("Fused elementwise ops", "bf16, graph replay", "us", bars), encoding="utf-8")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default=str(table.ROOT / "build/bin/bench_gpu"))
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/results/h200"), help="folder for the table and the plot")
    a = p.parse_args()
    table.need_program(p, a.program)
    torch = table.start_torch("compare_elementwise")
    rows, ceilings = [], None
    for command in ("norm", "rotary_append", "select", "sample"):
        found = list(table.ours(a.program, command))
        if not found:
            sys.exit(1)  # its error has been shown
        ceilings = ceilings or found[0]
        for row in found[1:]:
            row["torch_us"], row["torch_launches"] = PEERS[row["op"]](row)
            row["shape"] = shape_of(row)
            torch.cuda.empty_cache()
            rows.append(row)
        write(rows, ceilings, a)  # after each group, so that nothing measured is lost
    print((a.out / "elementwise_table.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
