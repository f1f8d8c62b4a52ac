"""Tables of whole models, as Markdown and CSV: steps and prompts beside their floors. For compare_transformers.py."""
import csv
import json
import os
import pathlib
import platform
import subprocess
import textwrap
import time

from decode_plots import write_plots

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS = ["shape", "program", "weights", "activations", "batch", "context", "weight_bytes", "bytes_per_step",
           "ms_per_step", "ms_min", "ms_max", "tokens_per_s", "floor_ms", "floor_share"]
PROMPT_COLUMNS = ["shape", "program", "weights", "activations", "prompt", "ms", "tokens_per_s", "floor_ms",
                  "floor_share"]


class Tables:
    def __init__(self):
        self.decode, self.prompt = [], []


def linear_weights(shape):
    """The numbers of a shape's linear layers without the head, which a prompt multiplies for its last token alone."""
    c = json.loads(pathlib.Path(shape).read_text())
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    kv = c.get("num_key_value_heads", heads) * (c.get("head_dim") or hidden // heads)
    mlp = c["intermediate_size"] * hidden * (2 if c["model_type"] == "gpt_neox" else 3)
    return c["num_hidden_layers"] * (2 * hidden * hidden + 2 * hidden * kv + mlp)


def add_floors(tables, shape, bandwidth, matrix_rate):
    for row in tables.decode:
        row["tokens_per_s"] = 1e3 * row["batch"] / row["ms_per_step"]
        row["floor_ms"] = 1e3 * row["bytes_per_step"] / bandwidth
        row["floor_share"] = row["floor_ms"] / row["ms_per_step"]
    for row in tables.prompt:
        row["tokens_per_s"] = 1e3 * row["prompt"] / row["ms"]
        if matrix_rate:
            row["floor_ms"] = 1e3 * 2 * linear_weights(shape) * row["prompt"] / matrix_rate
            row["floor_share"] = row["floor_ms"] / row["ms"]


def size(count):
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def decode_markdown(rows, heading):
    lines = [textwrap.fill(heading, 120, break_on_hyphens=False), "",
             "| shape | program | weights | bytes | batch | context | ms per step | min to max | tokens/s | "
             "floor, ms | floor / time |", "|" + "---|" * 11]
    for r in rows:
        lines.append(f"| {r['shape']} | {r['program']} | {r['weights']} | {size(r['weight_bytes'])} | {r['batch']} | "
                     f"{r['context']} | {r['ms_per_step']:.3f} | {r['ms_min']:.3f} to {r['ms_max']:.3f} | "
                     f"{r['tokens_per_s']:,.1f} | {r['floor_ms']:.3f} | {100 * r['floor_share']:.0f}% |")
    return "\n".join(lines) + "\n"


def prompt_markdown(rows, heading):
    lines = [textwrap.fill(heading, 120, break_on_hyphens=False), "",
             "| shape | program | weights | prompt | ms | tokens/s | floor, ms | floor / time |", "|" + "---|" * 8]
    for r in rows:
        floor = f"{r['floor_ms']:.2f} | {100 * r['floor_share']:.0f}% |" if "floor_ms" in r else "| |"
        lines.append(f"| {r['shape']} | {r['program']} | {r['weights']} | {r['prompt']} | {r['ms']:.2f} | "
                     f"{r['tokens_per_s']:,.0f} | {floor}")
    return "\n".join(lines) + "\n"


def heading(a, bandwidths, matrix_rate):
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    device, versions = f"{platform.machine()} CPU, {a.threads} threads", ""
    if not a.without_transformers:
        import torch
        import transformers

        versions = f", torch {torch.__version__}, transformers {transformers.__version__}"
        if a.device == "cuda":
            device = torch.cuda.get_device_name()
    elif a.device == "cuda":
        device = "GPU"
    rates = ", ".join(f"{rate / 1e9:,.1f} GB/s by {who}" for who, rate in bandwidths.items())
    products = f" Products: {matrix_rate / 1e12:,.0f} TFLOP/s by torch." if matrix_rate else ""
    commit = os.environ.get("TESSERA_COMMIT") or commit.stdout.strip() or "unknown"  # machines may have no git
    return (f"{time.strftime('%Y-%m-%d')}, commit {commit}, {device}{versions}. Random "
            f"weights and tokens; {a.generate} steps after each context; prompts into an empty cache. Medians of "
            f"{a.repeat} runs. Memory read: {rates}; the floor uses the faster.{products} Made by "
            f"bench/peers/compare_transformers.py.")


def write_csv(path, columns, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()}
                         for row in rows)


def write(tables, a, bandwidths, matrix_rate):
    a.out.mkdir(parents=True, exist_ok=True)
    about = heading(a, bandwidths, matrix_rate)
    (a.out / "decode_table.md").write_text(decode_markdown(tables.decode, about))
    write_csv(a.out / "decode_table.csv", COLUMNS, tables.decode)
    (a.out / "prompt_table.md").write_text(prompt_markdown(tables.prompt, about))
    write_csv(a.out / "prompt_table.csv", PROMPT_COLUMNS, tables.prompt)
    write_plots(tables.decode, a.contexts[0], a.out)
