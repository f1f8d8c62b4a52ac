#!/usr/bin/env python3
"""The gradients of attention on a GPU: Tessera beside PyTorch's flash and cuDNN back ends.

    python bench/peers/compare_backward.py --out docs/results/h200
    python bench/peers/compare_backward.py --out table --seq 4096 --dims 128 --masks causal

bf16, 16k tokens in all, as many heads as fit into a width of 2048. Flops are those of five products over visible pairs, for all
programs. First bench_gpu measures all cells, then PyTorch: `torch.autograd.grad` of scaled_dot_product_attention, by CUDA
events. The table goes to backward_table.md and backward_table.csv, plots to backward_dD.svg.
"""
import argparse
import pathlib
import statistics
import sys

import attention_peers
import gpu_table as table

COLUMNS = ["mask", "S", "D", "batch", "heads", "us", "tflop_per_s", "flash_tflop_per_s", "cudnn_tflop_per_s", "flops", "rel", "kernel"]
WARMUPS, CALLS = 3, 10


def microseconds(call):
    import torch

    times = []
    for _ in range(WARMUPS + CALLS):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e3)
    return statistics.median(times[WARMUPS:])


def peer_rate(backend, row):
    """TFLOP/s of a back end's backward pass; None if it refuses the shape."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kind = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[backend]
    tensors = [x.requires_grad_() for x in attention_peers.inputs(row)[0]]
    try:
        with sdpa_kernel(kind):
            out = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=row["mask"] == "causal")
            d_out = torch.randn_like(out)
            us = microseconds(lambda: torch.autograd.grad(out, tensors, d_out, retain_graph=True))
        return row["flops"] / us * 1e-6
    except RuntimeError as error:
        print(f"compare_backward: {backend}, {row['mask']} S={row['S']} D={row['D']}: {str(error).strip().splitlines()[0]}", file=sys.stderr)
        return None


def bars(rows):
    for row in rows:
        yield f"{row['mask']}, S={row['S']}: Tessera", round(row["tflop_per_s"], 1), table.plot.COLOURS["accent"]
        for backend, label in (("flash", "flash"), ("cudnn", "cuDNN")):
            if row[f"{backend}_tflop_per_s"]:
                yield label, round(row[f"{backend}_tflop_per_s"], 1), table.plot.COLOURS["plain"]


def draw(rows, out):
    for dim in dict.fromkeys(row["D"] for row in rows):
        chart = list(bars([row for row in rows if row["D"] == dim]))
        text = table.plot.draw(f"Attention backward, head dim {dim}", "bf16, 16k tokens, width 2048", "TFLOP/s", chart)
        (out / f"backward_d{dim}.svg").write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder of the table")
    parser.add_argument("--program", default=table.ROOT / "build" / "portable" / "bench_gpu")
    parser.add_argument("--seq", default="1024,2048,4096,8192,16384")
    parser.add_argument("--dims", default="64,128")
    parser.add_argument("--masks", default="full,causal")
    parser.add_argument("--kernel", default="", help="cuda.mma, ...; without it, Tessera chooses")
    a = parser.parse_args()
    table.need_program(parser, a.program)
    table.start_torch("compare_backward.py")
    command = ["backward", "--seq", a.seq, "--dims", a.dims, "--masks", a.masks, *(["--kernel", a.kernel] if a.kernel else [])]
    rows = [row for row in table.ours(a.program, *command) if row["op"] != "ceilings"]
    for row in rows:
        for backend in ("flash", "cudnn"):
            row[f"{backend}_tflop_per_s"] = peer_rate(backend, row)
        print(" ".join(f"{name}={table.cell(row.get(name))}" for name in COLUMNS[:9]), flush=True)
    out = pathlib.Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    text = table.heading("compare_backward.py", "bf16, backward, 16384 tokens, width 2048; TFLOP/s.", timing="Medians of 10 to 15 calls.")
    lines = [table.wrapped(text), "", "| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    lines += ["| " + " | ".join(table.cell(row.get(name), 6 if name == "rel" else 1) for name in COLUMNS) + " |" for row in rows]
    (out / "backward_table.md").write_text("\n".join(lines) + "\n")
    with open(out / "backward_table.csv", "w", encoding="utf-8") as file:
        print(",".join(COLUMNS), file=file)
        for row in rows:
            print(",".join(table.cell(row.get(name), 6) for name in COLUMNS), file=file)
    draw(rows, out)


if __name__ == "__main__":
    main()
