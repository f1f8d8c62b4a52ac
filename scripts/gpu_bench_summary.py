#!/usr/bin/env python3
"""Prints the results of scripts/gpu_bench.sh in a folder as Markdown tables.

  scripts/gpu_bench_summary.py OUT
"""
import json
import pathlib
import sys


def rows_of(folder, name):
    path = folder / name
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:  # the program was stopped while it wrote
            continue
    return rows


def shape(row):
    path = pathlib.Path(row["model"])
    return path.stem if path.suffix else path.name


def print_table(title, columns, rows):
    rows = list(rows)
    if not rows:
        return
    print(f"\n## {title}\n")
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


def steps(folder):
    """One line for each shape, format and context: what each step of the work gained."""
    cells = {}
    for r in rows_of(folder, "steps.jsonl"):
        kind = "plain" if not r["graphs"] else "captured" if not r["fusion"] else "fused"
        cells.setdefault((shape(r), r["weights"], r["context"]), {})[kind] = r
    for key, kinds in cells.items():
        times = {kind: r["ms_per_token"] for kind, r in kinds.items()}
        floor = next(iter(kinds.values()))["floor_ms"]
        best = min(times.values())
        yield [*key, *(times.get(kind, "") for kind in ("plain", "captured", "fused")), floor, f"{best / floor:.2f}x"]


def busy(folder):
    idle, loaded = (rows_of(folder, f"busy_{kind}.jsonl") for kind in ("idle", "loaded"))
    for a, b in zip(idle, loaded, strict=False):
        change = 100 * (b["ms_per_token"] / a["ms_per_token"] - 1)
        yield [shape(a), a["weights"], a["ms_per_token"], b["ms_per_token"], f"{change:+.1f}%"]


def engine(folder):
    for r in rows_of(folder, "engine.jsonl"):
        yield [shape(r), r["weights"], r["streams"], r["step_ms"], r["step_ms_p95"], r["floor_ms"], f"{r['of_floor']}x", r["stream_speed"]]


def company(folder):
    """The cost of equal bits for any number of streams."""
    plain = {}
    for r in rows_of(folder, "company.jsonl"):
        key = (shape(r), r["weights"], r["streams"])
        if not r["batch_invariant"]:
            plain[key] = r["step_ms"]
        elif key in plain:
            yield [*key, plain[key], r["step_ms"], f"{r['step_ms'] / plain[key]:.2f}x"]


def prompts(folder):
    for r in rows_of(folder, "prompts.jsonl"):
        tokens = next(key[2:] for key in r if key.startswith("pp"))
        yield [shape(r), r["weights"], tokens, r[f"pp{tokens}"], r["prompt_ms"], r["prompt_tflop_per_s"], r["product_tflop_per_s"],
               r["of_product_rate"]]


def variants(folder):
    for r in rows_of(folder, "decode_variants.jsonl"):
        if "over_plain" in r:
            rope = "yes" if r["rope_on_read"] else "no"
            yield [f"{r['batch']} x {r['S']}", r["page"] or "-", r["window"] or "-", r["sinks"] or "-", rope, r["us"], r["plain_us"],
                   f"{100 * r['over_plain']:+.1f}%", f"{r['rel']:.1e}", r["kernel"]]


def streams(folder):
    for r in rows_of(folder, "streams.jsonl"):
        yield [shape(r), r["weights"], r["tokens"], r["us_per_token"], r.get("of_10000", ""), r["cache_bytes"], r["workspace_bytes"],
               r["seconds"]]


def main():
    folder = pathlib.Path(sys.argv[1])
    print_table("Steps of a token, ms", ["shape", "weights", "context", "op by op", "captured", "all layers in one", "floor", "of floor"],
                steps(folder))
    print_table("Busy host, ms a token", ["shape", "weights", "idle", "all cores loaded", "change"], busy(folder))
    print_table("Equal streams", ["shape", "weights", "streams", "step ms", "95%", "floor ms", "of floor", "tokens/s"], engine(folder))
    print_table("The same bits in any company, ms a step", ["shape", "weights", "streams", "any bits", "--batch-invariant", "cost"],
                company(folder))
    print_table("Prompts", ["shape", "weights", "tokens", "tokens/s", "ms", "TFLOP/s of linear layers", "TFLOP/s of a product", "share"],
                prompts(folder))
    print_table("Decode attention beside a plain call over as many keys",
                ["batch x stored", "page", "window", "sinks", "rope_on_read", "us", "plain, us", "over plain", "error", "kernel"],
                variants(folder))
    print_table("Streams", ["model", "weights", "tokens", "us a token", "of that at 10,000", "cache bytes", "workspace bytes", "s so far"],
                streams(folder))
    for name in ("decode/decode_attention_table.md", "peers/decode_table.md", "requests.txt", "profile_fusion_on.txt", "profile_fusion_off.txt"):
        path = folder / name
        if path.is_file():
            fence = "```\n" if name.startswith("profile") else ""
            print(f"\n## {name}\n\n{fence}{path.read_text(encoding='utf-8').strip()}\n{fence}", end="")


if __name__ == "__main__":
    main()
