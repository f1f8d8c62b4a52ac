#!/usr/bin/env python3
"""Attention on a GPU: Tessera beside PyTorch's flash and cuDNN back ends, and beside flex_attention for sparse masks.

    python bench/peers/compare_attention.py --out docs/results/h200
    python bench/peers/compare_attention.py --out table --seq 4096 --dims 128 --masks causal
    python bench/peers/compare_attention.py --out docs/results/h200 --sparse

All programs take turns, a few calls each, in one run: a GPU lowers its clock as it gets warm, so the second program would look
slower. bf16, 16k tokens in all, as many heads as fit into each model width, if these are 8 or more. window: each query sees the
last 1024 keys. Flops are those of visible pairs, for all programs.

The grid goes to attention_table.md, .csv and a plot for each head dim. --sparse: patterns of 128 x 128 tiles at S=8192 beside
flex_attention, which gets the very same tiles and is compiled for them; to attention_sparse_table.md, attention_sparse.csv and plots.
"""
import argparse
import pathlib
import statistics
import sys
import time

import attention_peers
import gpu_table as table

SEQ, DIMS, MASKS, WIDTHS, HEADS = "512,1024,2048,4096,8192,16384", "64,80,128,256", "full,causal,window", "512,1024,2048", 8
# About a tenth and about a quarter of 64 x 64 tiles.
SPARSE = "full,full@cuda.dense,full@cuda.mma,local:3,random:6,strided:1:16,local:8,random:16,strided:4:8,causal-local:3,causal-random:16,causal-strided:4:8"
ROUNDS, LONG_ROUNDS, LONG_US = 5, 3, 2000  # calls that take long need fewer
TURNS = "Medians of graph replays, taken in turns (3 to 5 rounds of two replays of two calls)."
COLUMNS = ["mask", "S", "D", "batch", "heads", "us", "us_min", "us_max", "tflop_per_s", "flash_us", "cudnn_us", "flex_us", "floor", "flops",
           "tiles", "rel", "kernel"]


# ---- measuring ---------------------------------------------------------------------------------------------------------

def name_of(row):
    return f"{row['mask']} S={row['S']} D={row['D']} {row['batch']} x {row['heads']}"


def contenders(row, partner, sparse):
    """The programs that take turns on this row: for each, a function that returns some times."""
    import torch

    found = {"us": partner.replay}
    sets = attention_peers.inputs(row)
    for name, make in attention_peers.of(row, sparse).items():
        try:
            graph = make(row, sets)
            found[name] = lambda graph=graph: [graph.replay() for _ in range(3)][1:]  # the first warms up, as bench_gpu's
        except Exception as error:  # noqa: BLE001: a back end may refuse a shape in any way, and the others go on
            print(f"compare_attention: {name[:-3]}, {name_of(row)}: {str(error).strip().splitlines()[0]}", file=sys.stderr)
            torch.cuda.synchronize()
    return found


def measure(row, partner, sparse):
    times = {}
    who = contenders(row, partner, sparse)
    for _ in range(LONG_ROUNDS if row["floor"] > LONG_US else ROUNDS):
        for name, replay in who.items():
            times.setdefault(name, []).extend(replay())
    row |= {name: statistics.median(found) for name, found in times.items()}
    row |= {"us_min": min(times["us"]), "us_max": max(times["us"]), "tflop_per_s": row["flops"] / row["us"] * 1e-6}


def measure_all(a, masks, seq, widths):
    """All rows, and the rates of the machine. Rows that there is no time for are named."""
    import torch

    command = ["attention", "--seq", seq, "--dims", a.dims, "--masks", masks, "--width", widths, "--least-heads", a.heads,
                  *(["--kernel", a.kernel] if a.kernel else [])]
    rows, ceilings = [], None
    with table.Partner(a.program, *command) as partner:
        for row in partner:
            if ceilings is None:
                ceilings = row
                continue
            if time.monotonic() > a.deadline:
                print(f"compare_attention: {a.seconds:g} s are over; not measured: {name_of(row)} and all after it", file=sys.stderr)
                break
            measure(row, partner, a.sparse)
            rows.append(row)
            torch.cuda.empty_cache()
            if a.verbose:
                print(f"compare_attention: {time.monotonic() - a.start:.1f} s: {name_of(row)}", file=sys.stderr)
    if not rows:
        sys.exit(1)  # what was refused has been shown
    return rows, ceilings


# ---- the grid ----------------------------------------------------------------------------------------------------------

GRID_HEADS = ["mask", "S", "D", "batch x heads", "us", "TFLOP/s", "flash, TFLOP/s", "ratio", "cuDNN, TFLOP/s", "ratio", "of the matrix rate",
              "error", "kernel"]


def grid_cells(r, rate):
    cells = [r["mask"], str(r["S"]), str(r["D"]), f"{r['batch']} x {r['heads']}", f"{r['us']:.1f}", f"{r['tflop_per_s']:.0f}"]
    for peer in ("flash_us", "cudnn_us"):
        cells += [f"{r['flops'] / r[peer] * 1e-6:.0f}", f"{r[peer] / r['us']:.2f}x"] if r.get(peer) else ["-", "-"]
    return cells + [f"{100 * r['tflop_per_s'] / rate:.0f}%", f"{r['rel']:.1e}", r["kernel"]]


def summary(rows):
    """One sentence for each peer: how its time compares with ours over all cells, and where it is shorter."""
    for peer, label in (("flash_us", "flash"), ("cudnn_us", "cuDNN")):
        ratios = sorted((r[peer] / r["us"], name_of(r)) for r in rows if r.get(peer))
        if ratios:
            below = ", ".join(f"{name} ({ratio:.3f}x)" for ratio, name in ratios if ratio < 1)
            yield (f"Beside {label}: {ratios[0][0]:.2f}x to {ratios[-1][0]:.2f}x, median {statistics.median(ratio for ratio, _ in ratios):.2f}x, in {len(ratios)} cells; "
                   f"below 1: {below or 'none'}.")


def bars(rows):
    for r in rows:
        yield f"{r['mask']}, S={r['S']}: Tessera", round(r["tflop_per_s"], 1), table.plot.COLOURS["accent"]
        for peer, label in (("flash_us", "flash"), ("cudnn_us", "cuDNN")):
            if r.get(peer):
                yield label, round(r["flops"] / r[peer] * 1e-6, 1), table.plot.COLOURS["plain"]


def write_grid(rows, ceilings, a):
    rate = ceilings["tflop_per_s"]
    head = table.heading("compare_attention.py", f"bf16, forward, {len(rows)} cells; flops of visible pairs; ratio: their time over ours. A large "
                         f"bf16 matrix product reached {rate} TFLOP/s in the same run. The error is that of one head, against the same in f32. Windows: "
                         "by the flash back end's kernel, called directly; PyTorch has none for cuDNN.", timing=TURNS)
    head = "\n\n".join([head, *summary(rows)])
    (a.out / "attention_table.md").write_text(table.markdown(head, GRID_HEADS, (grid_cells(r, rate) for r in rows)), encoding="utf-8")
    table.write_csv(a.out / "attention_table.csv", COLUMNS, rows)
    for dim in dict.fromkeys(r["D"] for r in rows):
        widest = max(r["heads"] for r in rows if r["D"] == dim)
        chart = list(bars([r for r in rows if r["D"] == dim and r["heads"] == widest]))
        text = table.plot.draw(f"Attention forward, head dim {dim}", f"bf16, 16k tokens, {widest} heads", "TFLOP/s", chart)
        (a.out / f"attention_d{dim}.svg").write_text(text, encoding="utf-8")
    return a.out / "attention_table.md"


# ---- sparse ------------------------------------------------------------------------------------------------------------

SPARSE_HEADS = ["D", "mask", "tiles", "us", "of dense time", "TFLOP/s", "flex, us", "of flex, dense", "ratio", "error", "kernel"]


def sparse_cells(r, dense):
    """`dense`: times without a mask for this head dim, of the kernel that is chosen and of flex_attention."""
    share = lambda us, whole: f"{100 * us / whole:.1f}%" if us and whole else "-"  # noqa: E731
    flex_us = r.get("flex_us")
    return [str(r["D"]), r["mask"], f"{100 * r.get('tiles', 1):.1f}%", f"{r['us']:.1f}", share(r["us"], dense.get("us")), f"{r['tflop_per_s']:.0f}", f"{flex_us:.1f}" if flex_us else "-", share(flex_us, dense.get("flex_us")),
            f"{flex_us / r['us']:.2f}x" if flex_us else "-", f"{r['rel']:.1e}", r["kernel"]]


def sparse_bars(rows):
    """The time of each visited tile: constant if the cost grows with their number."""
    for r in rows:
        visited = r.get("tiles", 1) * (r["S"] / 128) ** 2 * r["batch"] * r["heads"]
        yield f"{r['mask']}: Tessera", round(1e3 * r["us"] / visited, 2), table.plot.COLOURS["accent"]
        if r.get("flex_us"):
            yield "flex_attention", round(1e3 * r["flex_us"] / visited, 2), table.plot.COLOURS["plain"]


def write_sparse(rows, ceilings, a):
    lines = []
    for dim in dict.fromkeys(r["D"] for r in rows):
        mine = [r for r in rows if r["D"] == dim]
        dense = next((r for r in mine if r["mask"] == "full"), {})
        lines += [sparse_cells(r, dense) for r in mine]
        text = table.plot.draw(f"Sparse attention, head dim {dim}: time for each visited tile of 128 x 128", "bf16, S=8192, all multiprocessors busy",
                               "ns", list(sparse_bars(mine)))
        (a.out / f"attention_sparse_d{dim}.svg").write_text(text, encoding="utf-8")
    head = table.heading("compare_attention.py --sparse", f"bf16, forward, S={rows[0]['S']}, {rows[0]['batch'] * rows[0]['S']} tokens; patterns of 128 x 128 "
                         "tiles: local:R within R tiles of the diagonal, random:N N tiles a row, strided:R:S near ones and every S-th, causal-: of them those up to the diagonal. The same tiles for "
                         f"flex_attention (torch.compile). ratio: flex's time over ours. A large bf16 matrix product reached {ceilings['tflop_per_s']} TFLOP/s.",
                         timing=TURNS)
    (a.out / "attention_sparse_table.md").write_text(table.markdown(head, SPARSE_HEADS, lines), encoding="utf-8")
    table.write_csv(a.out / "attention_sparse.csv", COLUMNS, rows)
    return a.out / "attention_sparse_table.md"


# ---- the command -------------------------------------------------------------------------------------------------------

def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seq", help=f"{SEQ}; --sparse: 8192")
    p.add_argument("--dims", help=f"{DIMS}; --sparse: 64,128")
    p.add_argument("--masks", help=f"{MASKS}; --sparse: {SPARSE}")
    p.add_argument("--widths", help=f"width of the model; {WIDTHS}; --sparse: 2048")
    p.add_argument("--heads", type=int, default=HEADS, help="for each dim, leave out widths with fewer heads")
    p.add_argument("--sparse", action="store_true", help="sparse masks, beside flex_attention")
    p.add_argument("--kernel", help="cuda.mma, ... instead of the kernel that is chosen")
    p.add_argument("--seconds", type=float, default=600, help="rows that are not measured by then are named and left out")
    p.add_argument("--verbose", action="store_true", help="report when each row is done")
    p.add_argument("--program", default=str(table.ROOT / "build/bin/bench_gpu"))
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/results/h200"), help="folder for tables and plots")
    a = p.parse_args()
    table.need_program(p, a.program)
    a.dims = a.dims or ("64,128" if a.sparse else DIMS)
    a.start = time.monotonic()
    a.deadline = a.start + a.seconds
    return a


def main():
    a = arguments()
    table.start_torch("compare_attention")
    a.out.mkdir(parents=True, exist_ok=True)
    default = (SPARSE, "8192", "2048") if a.sparse else (MASKS, SEQ, WIDTHS)
    rows, ceilings = measure_all(a, a.masks or default[0], a.seq or default[1], a.widths or default[2])
    written = (write_sparse if a.sparse else write_grid)(rows, ceilings, a)
    print(written.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
