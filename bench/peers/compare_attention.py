#!/usr/bin/env python3
"""Attention on a GPU: Tessera beside PyTorch's flash and cuDNN back ends, and flex_attention for sparse masks, in one run.

    python bench/peers/compare_attention.py --out docs/results/h200
    python bench/peers/compare_attention.py --out table --seq 4096 --dims 128 --masks causal,blocks10

Writes attention.md, attention.csv and a plot for each head dim. bf16, 16k tokens, as many heads as fit into a model width of
2048. window: each query sees the last 1024 keys; blocks10: a tenth of the 128 x 128 tiles, drawn at random. Flops are those of
visible pairs, for everybody. The back ends have no windows and no block masks; flex_attention, which is compiled for each mask,
stands in for them there (--flex).
"""
import argparse
import pathlib
import sys

import gpu_table as table

SEQ, DIMS, MASKS = "512,1024,2048,4096,8192,16384", "64,80,128,256", "full,causal,window"
WINDOW, TILE = 1024, 128
COLUMNS = ["mask", "S", "D", "batch", "heads", "us", "tflop_per_s", "flash_us", "cudnn_us", "flex_us", "floor", "flops", "rel", "kernel"]


# ---- peers -------------------------------------------------------------------------------------------------------------

def inputs(row):
    """q, k, v as [batch, heads, seq, dim] views of [batch, seq, heads, dim]: what a model has. Two sets, as bench_gpu."""
    import torch

    shape = (row["batch"], row["S"], row["heads"], row["D"])
    return [[torch.randn(shape, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(3)] for _ in range(2)]


def sdpa(row, backend):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kind = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[backend]
    attend = torch.nn.functional.scaled_dot_product_attention
    causal = row["mask"] == "causal"
    with sdpa_kernel(kind):
        return table.microseconds([lambda s=s: attend(*s, is_causal=causal) for s in inputs(row)])


def flex(row):
    import torch
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

    S = row["S"]
    if row["mask"] == "window":
        mask = create_block_mask(lambda b, h, q, k: (k <= q) & (k > q - WINDOW), None, None, S, S, device="cuda")
    else:
        tiles = -(-S // TILE)
        per_row = max(1, (tiles + 5) // 10)  # as many as bench_gpu's mask has; which ones is up to chance in both
        seen = torch.rand(tiles, tiles, device="cuda").fill_diagonal_(2).argsort(1, descending=True)[:, :per_row].sort(1).values
        order = torch.zeros(1, 1, tiles, tiles, dtype=torch.int32, device="cuda")
        order[..., :per_row] = seen
        count = torch.full((1, 1, tiles), per_row, dtype=torch.int32, device="cuda")
        none = torch.zeros_like(count)
        mask = BlockMask.from_kv_blocks(none, torch.zeros_like(order), count, order, BLOCK_SIZE=TILE)
    compiled = torch.compile(flex_attention, dynamic=False)
    return table.microseconds([lambda s=s: compiled(*s, block_mask=mask) for s in inputs(row)])


def add_peers(row, a):
    import torch

    def attempt(name, fn):
        try:
            row[name] = fn()
        except Exception as error:  # noqa: BLE001: a back end may refuse a shape in any way, and the others go on
            print(f"compare_attention: {name[:-3]}, {row['mask']} S={row['S']} D={row['D']}: {str(error).splitlines()[0]}", file=sys.stderr)
        torch.cuda.empty_cache()

    if row["mask"] in ("full", "causal"):
        attempt("flash_us", lambda: sdpa(row, "flash"))
        attempt("cudnn_us", lambda: sdpa(row, "cudnn"))
    elif a.flex:
        attempt("flex_us", lambda: flex(row))


# ---- the table ---------------------------------------------------------------------------------------------------------

HEADS = ["mask", "S", "D", "batch x heads", "us", "TFLOP/s", "flash, TFLOP/s", "ratio", "cuDNN, TFLOP/s", "ratio", "flex, TFLOP/s", "ratio",
         "of the matrix rate", "error", "kernel"]


def as_cells(r, rate):
    cells = [r["mask"], str(r["S"]), str(r["D"]), f"{r['batch']} x {r['heads']}", f"{r['us']:.1f}", f"{r['tflop_per_s']:.0f}"]
    for peer in ("flash_us", "cudnn_us", "flex_us"):
        cells += [f"{r['flops'] / r[peer] * 1e-6:.0f}", f"{r[peer] / r['us']:.2f}x"] if r.get(peer) else ["-", "-"]
    return cells + [f"{100 * r['tflop_per_s'] / rate:.0f}%", f"{r['rel']:.1e}", r["kernel"]]


def bars(rows):
    for r in rows:
        name = f"{r['mask']}, S={r['S']}"
        yield f"{name}: Tessera", r["tflop_per_s"], table.plot.COLOURS["accent"]
        for peer, label in (("flash_us", "flash"), ("cudnn_us", "cuDNN"), ("flex_us", "flex")):
            if r.get(peer):
                yield label, round(r["flops"] / r[peer] * 1e-6, 1), table.plot.COLOURS["plain"]


def write(rows, ceilings, a):
    a.out.mkdir(parents=True, exist_ok=True)
    rate = ceilings["tflop_per_s"]
    head = table.heading("compare_attention.py", f"bf16, forward; flops of visible pairs. A large bf16 matrix product reached {rate} TFLOP/s in the "
                         "same run. The error is that of one head, against the same in f32.")
    (a.out / "attention.md").write_text(table.markdown(head, HEADS, (as_cells(r, rate) for r in rows)), encoding="utf-8")
    table.write_csv(a.out / "attention.csv", COLUMNS, rows)
    for dim in dict.fromkeys(r["D"] for r in rows):
        chart = list(bars([r for r in rows if r["D"] == dim]))
        (a.out / f"attention_d{dim}.svg").write_text(table.plot.draw(f"Attention forward, head dim {dim}", "bf16, 16k tokens", "TFLOP/s", chart), encoding="utf-8")


# ---- the command -------------------------------------------------------------------------------------------------------

def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seq", default=SEQ)
    p.add_argument("--dims", default=DIMS)
    p.add_argument("--masks", default=MASKS, help="full, causal, window, blocks10")
    p.add_argument("--flex", action="store_true", help="run flex_attention on window and blocks10; it compiles for seconds")
    p.add_argument("--kernel", help="cuda.mma, ... instead of the kernel that is chosen")
    p.add_argument("--program", default=str(table.ROOT / "build/bin/bench_gpu"))
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/results/h200"), help="folder for the table and the plots")
    a = p.parse_args()
    table.need_program(p, a.program)
    return a


def main():
    a = arguments()
    table.start_torch("compare_attention")
    rows = []
    for dim in a.dims.split(","):
        found = list(table.ours(a.program, "attention", "--seq", a.seq, "--dims", dim, "--masks", a.masks,
                                *(["--kernel", a.kernel] if a.kernel else [])))
        if not found:
            sys.exit(1)  # what it refused has been shown
        for row in found[1:]:
            add_peers(row, a)
            rows.append(row)
        write(rows, found[0], a)  # after each head dim: what is measured is not lost
    print((a.out / "attention.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
