#!/usr/bin/env python3
"""Attention of one query a sequence on a GPU: Tessera, dense and paged, beside PyTorch's cuDNN and flash back ends.

    python bench/peers/compare_decode.py --out docs/results/h200
    python bench/peers/compare_decode.py --batch 1,64 --context 4096 --heads 32:8:128 --pages 0,64

bf16. --heads names heads, heads of keys and values, and head dim. Inputs are rotated past the second cache. PyTorch's back ends
have no pages: they get the same keys in one piece. The table goes to decode_attention_table.md, with a .csv beside it.
"""
import argparse
import pathlib

import gpu_table as table

BATCHES, CONTEXTS, PAGES = "1,16,64", "512,4096,32768", "0,16,64,256"
HEADS = "32:8:128,32:32:128,32:32:80,32:8:64"
MOST_BYTES = 20e9  # of keys and values: longer batches are left out
COLUMNS = ["batch", "S", "heads", "kv_heads", "D", "page", "us", "tb_per_s", "cudnn_us", "flash_us", "floor", "rel", "kernel"]
TITLES = ["batch x context", "heads (kv)", "D", "page", "us", "TB/s", "cuDNN, us", "ratio", "flash, us", "ratio", "floor, us", "kernel"]


def numbers(text):
    return [int(x) for x in text.split(",")]


def peer(backend, batch, keys, heads, kv_heads, dim):
    """Microseconds of scaled_dot_product_attention by one back end; None where it refuses."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def make(n, h):
        return torch.randn(batch, n, h, dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2)

    copies = table.copies_beyond_cache(4 * batch * keys * kv_heads * dim, 64)
    sets = [(make(1, heads), make(keys, kv_heads), make(keys, kv_heads)) for _ in range(copies)]
    attend = torch.nn.functional.scaled_dot_product_attention
    kind = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[backend]
    try:
        with sdpa_kernel(kind):
            return table.microseconds([lambda s=s: attend(*s, enable_gqa=heads != kv_heads) for s in sets])
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    finally:
        del sets
        torch.cuda.empty_cache()


def measure(a):
    """All rows, and what the machine can do."""
    rows, ceilings = [], None
    for spec in a.heads.split(","):
        heads, kv_heads, dim = (int(x) for x in spec.split(":"))
        for batch in numbers(a.batch):
            for keys in numbers(a.context):
                if 4.0 * batch * keys * kv_heads * dim > MOST_BYTES:
                    continue
                peers = {f"{name}_us": peer(name, batch, keys, heads, kv_heads, dim) for name in a.peers.split(",")}
                for page in numbers(a.pages):
                    command = ["decode", "--batch", batch, "--context", keys, "--dims", dim, "--kv-heads", kv_heads, "--groups", heads // kv_heads,
                               "--page", page, *(["--kernel", a.kernel] if a.kernel else [])]
                    for row in table.ours(a.program, *command):
                        if row["op"] == "ceilings":
                            ceilings = row
                        else:
                            rows.append(row | peers)
    return rows, ceilings


def cells(r):
    found = [f"{r['batch']} x {r['S']}", f"{r['heads']} ({r['kv_heads']})", str(r["D"]), str(r["page"] or "-"), f"{r['us']:.1f}", f"{r['tb_per_s']:.2f}"]
    for name in ("cudnn_us", "flash_us"):
        found += [f"{r[name]:.1f}", f"{r[name] / r['us']:.2f}x"] if r.get(name) else ["-", "-"]
    return [*found, f"{r['floor']:.1f}", r["kernel"]]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--batch", default=BATCHES)
    p.add_argument("--context", default=CONTEXTS)
    p.add_argument("--heads", default=HEADS)
    p.add_argument("--pages", default=PAGES, help="tokens of a page; 0: none")
    p.add_argument("--peers", default="cudnn,flash")
    p.add_argument("--kernel", help="cuda.split, ... instead of the kernel that is chosen")
    p.add_argument("--program", default=str(table.ROOT / "build/bin/bench_gpu"))
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/results/h200"), help="folder for the tables")
    a = p.parse_args()
    table.need_program(p, a.program)
    table.start_torch("compare_decode")
    rows, ceilings = measure(a)
    a.out.mkdir(parents=True, exist_ok=True)
    head = table.heading("compare_decode.py", "bf16, one query a sequence; ratio: their time over ours. Memory was read at "
                         f"{ceilings['tb_per_s']} TB/s in the same run, which gives the floor.")
    written = a.out / "decode_attention_table.md"
    written.write_text(table.markdown(head, TITLES, map(cells, rows)), encoding="utf-8")
    table.write_csv(a.out / "decode_attention_table.csv", COLUMNS, rows)
    print(written.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
