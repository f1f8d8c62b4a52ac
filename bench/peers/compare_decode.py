#!/usr/bin/env python3
"""Attention of one query for each sequence on a GPU: Tessera, dense and paged, with 16 and 8 bits, beside PyTorch's back ends.

    python bench/peers/compare_decode.py --out docs/results/h200
    python bench/peers/compare_decode.py --batch 1,64 --context 4096 --heads 32:8:128 --pages 0,64 --dry-run

--heads names heads, heads of keys and values, and head dim. Queries are bf16, keys and values bf16, int8 or fp8 with scales.
Inputs are rotated past the second cache. PyTorch's cuDNN and flash back ends have neither pages nor 8 bits: they get the same keys
in one piece, in bf16, and take turns.

A start of bench_gpu costs as much as several cells. So for each of --heads there are three: dense bf16, then pages, then 8 bits;
PyTorch's turn is between the first two. Pages and 8 bits are measured for --some-batches only, and 8 bits only for contexts from
--long-context on, where memory limits the speed of a step.

The table goes to decode_attention_table.md, with a .csv beside it and two plots for each of --heads: the time beside cuDNN's, and
the share of the measured memory rate. It is written again after each of --heads. After --minutes nothing more is started.
"""
import argparse
import pathlib
import statistics
import sys
import time

import gpu_table as table

BATCHES, CONTEXTS, PAGES, KV_DTYPES = "1,4,16,64", "512,4096,32768,131072", "0,16,64,256", "bf16,int8,fp8"
HEADS = "32:8:128,32:32:128,32:32:80,32:8:64"  # the last ones are left out if time runs out
CODED_PAGES = "0,64"  # of 8 bits
MOST_BYTES = 10e9  # of keys and values, as they are stored: cells with more are left out
COLUMNS = ["batch", "S", "heads", "kv_heads", "D", "page", "kv_dtype", "us", "spread", "tb_per_s", "cudnn_us", "flash_us", "of_16_bits",
           "floor", "bytes", "rel", "kernel"]
TITLES = ["batch x context", "heads (kv)", "D", "page", "keys", "us", "TB/s", "of the memory rate", "cuDNN, us", "ratio", "flash, us",
          "ratio", "of 16 bits", "error", "kernel"]
LABELS = {"cudnn": "cuDNN", "flash": "flash"}


# ---- what is measured --------------------------------------------------------------------------------------------------

def numbers(text):
    return [int(x) for x in text.split(",") if x]


def join(values):
    return ",".join(map(str, values))


class Heads:
    def __init__(self, spec):
        self.heads, self.kv_heads, self.dim = (int(x) for x in spec.split(":"))

    def __str__(self):
        return f"{self.heads}:{self.kv_heads}:{self.dim}"

    def bytes(self, batch, keys):
        """Of keys and values in bf16."""
        return 4 * batch * keys * self.kv_heads * self.dim

    def file_name(self, what):
        return f"decode_{what}_{self.heads}_{self.kv_heads}_d{self.dim}.svg"


def commands(h, a):
    """The arguments of bench_gpu: dense bf16 first, for the comparison with peers."""
    pages, kinds = numbers(a.pages), a.kv_dtypes.split(",")
    some = [b for b in numbers(a.batch) if b in numbers(a.some_batches)] or numbers(a.batch)[:1]
    long = [c for c in numbers(a.context) if c >= a.long_context]
    coded, coded_pages = [k for k in kinds if k != "bf16"], [p for p in pages if p in numbers(CODED_PAGES)]
    lists = [(numbers(a.batch), numbers(a.context), [p for p in pages if p == 0], ["bf16"] if "bf16" in kinds else []),
             (some, numbers(a.context), [p for p in pages if p > 0], ["bf16"] if "bf16" in kinds else []),
             (some, long, coded_pages, coded)]
    for batches, contexts, of_pages, stored in lists:
        if batches and contexts and of_pages and stored:
            yield ["decode", "--kv-heads", h.kv_heads, "--groups", h.heads // h.kv_heads, "--dims", h.dim, "--batch", join(batches),
                   "--context", join(contexts), "--page", join(of_pages), "--kv-dtype", join(stored), "--most-bytes", int(a.most_bytes),
                   *(["--kernel", a.kernel] if a.kernel else [])]


def peer_cells(h, a):
    return [(b, k) for b in numbers(a.batch) for k in numbers(a.context) if h.bytes(b, k) <= a.most_bytes]


# ---- measuring ---------------------------------------------------------------------------------------------------------

def refusal(who, batch, keys, h, error):
    print(f"compare_decode: {who}, {batch} x {keys}, {h}: {str(error).strip().splitlines()[0]}", file=sys.stderr)


def peers(names, batch, keys, h):
    """Microseconds of scaled_dot_product_attention by each back end, in turns; those that refuse are left out."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kinds = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    attend = torch.nn.functional.scaled_dot_product_attention

    def make(n, count):
        return torch.randn(batch, n, count, h.dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2)

    copies = table.copies_beyond_cache(h.bytes(batch, keys), 64)
    sets = [(make(1, h.heads), make(keys, h.kv_heads), make(keys, h.kv_heads)) for _ in range(copies)]
    graphs = {}
    for name in names:
        try:
            with sdpa_kernel(kinds[name]):
                graphs[name] = table.Captured([lambda s=s: attend(*s, enable_gqa=h.heads != h.kv_heads) for s in sets])
        except RuntimeError as error:
            refusal(name, batch, keys, h, error)
            torch.cuda.synchronize()
    times = {name: [] for name in graphs}
    for _ in range(table.WARMUPS + table.REPLAYS):
        for name, graph in graphs.items():
            times[name].append(graph.replay())
    del graphs, sets
    torch.cuda.empty_cache()
    return {f"{name}_us": statistics.median(found[table.WARMUPS:]) for name, found in times.items()}


def measure_peers(h, a):
    """By (batch, keys)."""
    found = {}
    for batch, keys in peer_cells(h, a):
        if a.late():
            break
        try:
            found[batch, keys] = peers(a.peers.split(","), batch, keys, h)
        except RuntimeError as error:  # no memory for the inputs
            refusal("PyTorch", batch, keys, h, error)
    return found


def measure_ours(command, a):
    """The rows of one bench_gpu, as far as there is time. It ends as soon as its rows are no longer read."""
    rows = []
    for row in table.ours(a.program, *command):
        if row["op"] == "ceilings":
            a.rates.append(row["tb_per_s"])
        else:
            rows.append(row)
        if a.late():
            break
    return rows


def measure(h, a):
    rows, found = [], {}
    for i, command in enumerate(commands(h, a)):
        if a.late():
            break
        rows += measure_ours(command, a)
        if i == 0 and a.peers:
            found = measure_peers(h, a)
    by_cell = {(r["batch"], r["S"], r["page"], r["kv_dtype"]): r["us"] for r in rows}
    for row in rows:
        row |= found.get((row["batch"], row["S"]), {})
        plain = by_cell.get((row["batch"], row["S"], row["page"], "bf16"))
        if row["kv_dtype"] != "bf16" and plain:
            row["of_16_bits"] = plain / row["us"]
    return rows


# ---- the tables --------------------------------------------------------------------------------------------------------

def name_of(r):
    keys = "" if r["kv_dtype"] == "bf16" else f", {r['kv_dtype']}"
    return f"{r['batch']} x {r['S']}, {r['heads']} ({r['kv_heads']}), D {r['D']}{keys}"


def cells(r):
    found = [f"{r['batch']} x {r['S']}", f"{r['heads']} ({r['kv_heads']})", str(r["D"]), str(r["page"] or "-"), r["kv_dtype"], f"{r['us']:.1f}",
             f"{r['tb_per_s']:.2f}", f"{100 * r['floor'] / r['us']:.0f}%"]
    for name in LABELS:
        us = r.get(f"{name}_us")
        found += [f"{us:.1f}", f"{us / r['us']:.2f}x"] if us else ["-", "-"]
    return [*found, f"{r['of_16_bits']:.2f}x" if "of_16_bits" in r else "-", f"{r['rel']:.1e}", r["kernel"]]


def sentence(what, ratios, bar):
    """The range of some ratios, and which are below the bar. `ratios`: (ratio, name of the cell)."""
    if not ratios:
        return []
    ratios = sorted(ratios)
    below = ", ".join(f"{name} ({ratio:.2f}x)" for ratio, name in ratios if ratio < bar)
    middle = statistics.median(ratio for ratio, _ in ratios)
    return [f"{what}: {ratios[0][0]:.2f}x to {ratios[-1][0]:.2f}x, median {middle:.2f}x, in {len(ratios)} cells; below {bar:g}: {below or 'none'}."]


def summary(rows):
    for name, label in LABELS.items():
        for page in dict.fromkeys(r["page"] for r in rows):
            of_page = [r for r in rows if r["page"] == page and r["kv_dtype"] == "bf16" and r.get(f"{name}_us")]
            where = f"pages of {page}" if page else "dense"
            yield from sentence(f"Beside {label}, {where}", [(r[f"{name}_us"] / r["us"], name_of(r)) for r in of_page], 1)
    for stored in dict.fromkeys(r["kv_dtype"] for r in rows):
        yield from sentence(f"{stored} beside bf16", [(r["of_16_bits"], name_of(r)) for r in rows if r["kv_dtype"] == stored and "of_16_bits" in r], 1.7)


def speed_bars(rows):
    for r in rows:
        if r.get("cudnn_us"):
            ratio = r["cudnn_us"] / r["us"]
            yield f"{r['batch']} x {r['S']}", round(ratio, 2), table.plot.COLOURS["accent" if ratio >= 1 else "plain"]


def bandwidth_bars(rows, coded):
    """Shares of the measured memory rate, from the bytes that each program reads."""
    for r in rows:
        yield f"{r['batch']} x {r['S']}: Tessera", round(100 * r["floor"] / r["us"], 1), table.plot.COLOURS["accent"]
        for c in (c for c in coded if (c["batch"], c["S"]) == (r["batch"], r["S"])):
            yield c["kv_dtype"], round(100 * c["floor"] / c["us"], 1), table.plot.COLOURS["accent"]
        if r.get("cudnn_us"):
            yield "cuDNN", round(100 * r["floor"] / r["cudnn_us"], 1), table.plot.COLOURS["plain"]


def draw(rows, h, out):
    mine = [r for r in rows if (r["heads"], r["kv_heads"], r["D"]) == (h.heads, h.kv_heads, h.dim) and r["page"] == 0]
    dense = sorted((r for r in mine if r["kv_dtype"] == "bf16"), key=lambda r: (r["batch"], r["S"]))
    about = f"{h.heads} heads, {h.kv_heads} of keys, head dim {h.dim}"
    plots = {"speed": (f"Decode attention beside cuDNN, {about}", "bf16, dense; batch x context; cuDNN's time over ours", "x", list(speed_bars(dense))),
             "bandwidth": (f"Decode attention, {about}", "dense; batch x context; bytes of keys and values, share of the measured memory rate", "%",
                           list(bandwidth_bars(dense, [r for r in mine if r["kv_dtype"] != "bf16"])))}
    for what, (title, note, unit, bars) in plots.items():
        if bars:
            (out / h.file_name(what)).write_text(table.plot.draw(title, note, unit, bars), encoding="utf-8")


def write(rows, a):
    a.out.mkdir(parents=True, exist_ok=True)
    rates = f"{min(a.rates)} to {max(a.rates)}" if min(a.rates) < max(a.rates) else str(a.rates[0])
    about = ("One query a sequence, bf16; keys: what keys and values are stored as (8 bits: with a scale for each head and token). ratio: their time over "
             "ours; they have dense bf16 keys in every row. of 16 bits: the time with bf16 keys over this. The error is that of one head, against the same "
             f"keys in f32. Memory was read at {rates} TB/s in the same run.")
    head = "\n\n".join([table.heading("compare_decode.py", about), *summary(rows)])
    written = a.out / "decode_attention_table.md"
    written.write_text(table.markdown(head, TITLES, map(cells, rows)), encoding="utf-8")
    table.write_csv(a.out / "decode_attention_table.csv", COLUMNS, rows)
    for spec in a.heads.split(","):
        draw(rows, Heads(spec), a.out)
    return written


# ---- the command -------------------------------------------------------------------------------------------------------

def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--batch", default=BATCHES, help="sequences")
    p.add_argument("--context", default=CONTEXTS, help="keys of each sequence; multiples of --pages")
    p.add_argument("--heads", default=HEADS)
    p.add_argument("--pages", default=PAGES, help="tokens of a page; 0: none")
    p.add_argument("--kv-dtypes", default=KV_DTYPES, help="bf16, int8, fp8")
    p.add_argument("--some-batches", default="1,64", help="batches that are measured with pages and with 8 bits")
    p.add_argument("--long-context", type=int, default=4096, help="the shortest context that is measured with 8 bits")
    p.add_argument("--most-bytes", type=float, default=MOST_BYTES, help="leave out cells with more bytes of keys and values")
    p.add_argument("--peers", default="cudnn,flash", help="'': none")
    p.add_argument("--kernel", help="cuda.split, ... instead of the kernel that is chosen")
    p.add_argument("--minutes", type=float, default=1e9, help="start nothing more after this time")
    p.add_argument("--dry-run", action="store_true", help="print what would be run")
    p.add_argument("--program", default=str(table.ROOT / "build/bin/bench_gpu"))
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/results/h200"), help="folder for the tables")
    a = p.parse_args()
    if not a.dry_run:
        table.need_program(p, a.program)
    end = time.monotonic() + 60 * a.minutes
    a.late = lambda: time.monotonic() > end
    a.rates = []
    return a


def show_plan(a):
    for h in map(Heads, a.heads.split(",")):
        for i, command in enumerate(commands(h, a)):
            print(a.program, *command)
            if i == 0 and a.peers:
                print(f"PyTorch, {a.peers.replace(',', ' and ')}, {h}:", ", ".join(f"{b} x {k}" for b, k in peer_cells(h, a)))


def main():
    a = arguments()
    if a.dry_run:
        show_plan(a)
        return
    table.start_torch("compare_decode")
    rows, written = [], None
    for h in map(Heads, a.heads.split(",")):
        if a.late():
            print(f"compare_decode: {a.minutes:g} minutes are over; not measured: {h} and all after it", file=sys.stderr)
            break
        rows += measure(h, a)
        if rows:
            written = write(rows, a)  # after each, so that nothing measured is lost
    if written is None:
        sys.exit(1)  # what went wrong has been shown
    print(written.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
