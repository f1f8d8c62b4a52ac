#!/usr/bin/env python3
"""Compares Tessera with transformers: the same shapes with random weights, one device, one run.

    python bench/peers/compare_transformers.py --out docs/results/h200

For each shape (a config.json) it times transformers in f16 and bf16, eagerly and, on a GPU, with a static cache
replayed from a CUDA graph; then build/bin/bench_generate in every weight format. It writes one table as
decode_table.md and decode_table.csv and one plot per shape as decode_SHAPE.svg into --out. All weights are made on the
device. Batch 1. Tokens are random and nothing is sampled, on either side; with --sample, Tessera's are drawn by
generate(), and the graph of transformers draws the most likely one.

A prompt is read into an empty cache, with the logits of its last token. A token's time is the mean over --generate
tokens after --context others, with one wait at the end. The table shows the median, the smallest and the largest of
--repeat such runs. The floor of a token is the time to read its bytes (linear layers, head, keys, values) at the
fastest memory rate of this run: that of torch summing up a large tensor, or that of bench_generate (on a GPU a copy,
with bytes read and bytes written counted).

Needs torch and transformers (4.56 or later), except with --without-transformers.
"""
import argparse
import csv
import gc
import itertools
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import textwrap
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import plot  # noqa: E402

SHAPES = [ROOT / "bench/shapes" / name for name in ("pythia-160m.json", "pythia-2.8b.json")]
WEIGHTS = ["f16", "bf16", "fp8", "int8", "int4:128", "int4:32", "nvfp4", "mxfp4", "nf4"]
COLUMNS = ["shape", "program", "weights", "activations", "weight_bytes", "bytes_per_token", "ms_per_token", "ms_min",
           "ms_max", "tokens_per_s", "prompt_tokens_per_s", "floor_ms", "floor_share"]


# ---- transformers ----------------------------------------------------------------------------------------------------

class Transformers:
    """One shape in one dtype, with random weights made on the device."""

    def __init__(self, shape, dtype, a):
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        self.torch, self.a, self.dtype = torch, a, dtype
        config = AutoConfig.from_pretrained(shape)
        with torch.device(a.device):
            self.model = AutoModelForCausalLM.from_config(config, dtype=torch_dtype(dtype)).eval()
            self.ids = torch.randint(config.vocab_size, (1, max(a.prompt, a.context + a.generate)))

    def wait(self):
        if self.a.device == "cuda":
            self.torch.cuda.synchronize()

    def feed(self, cache, start, end):
        return self.model(self.ids[:, start:end], past_key_values=cache, use_cache=True, logits_to_keep=1).past_key_values

    def prompt_seconds(self):
        self.wait()
        start = time.perf_counter()
        self.feed(None, 0, self.a.prompt)
        self.wait()
        return time.perf_counter() - start

    def token_seconds(self):
        cache = self.feed(None, 0, self.a.context) if self.a.context else None
        self.wait()
        start = time.perf_counter()
        for i in range(self.a.context, self.a.context + self.a.generate):
            cache = self.feed(cache, i, i + 1)
        self.wait()
        return (time.perf_counter() - start) / self.a.generate

    def bytes_per_token(self):
        linear = sum(m.weight.nbytes for m in self.model.modules() if isinstance(m, self.torch.nn.Linear))
        config = self.model.config
        kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        seen = self.a.context + (self.a.generate + 1) // 2  # the mean, including the token itself
        return linear + 2 * config.num_hidden_layers * kv_heads * head_dim * self.model.dtype.itemsize * seen

    def measure(self):
        with self.torch.inference_mode():
            for _ in range(2):  # kernels are chosen and loaded here
                self.prompt_seconds()
                self.token_seconds()
            prompt = [self.prompt_seconds() for _ in range(self.a.repeat)]
            token = [1e3 * self.token_seconds() for _ in range(self.a.repeat)]
        attention = self.model.config._attn_implementation
        return {"program": f"transformers, {attention} attention", "weights": self.dtype, "activations": self.dtype,
                "weight_bytes": sum(p.nbytes for p in self.model.parameters()),
                "bytes_per_token": self.bytes_per_token(), "ms_per_token": statistics.median(token),
                "ms_min": min(token), "ms_max": max(token),
                "prompt_tokens_per_s": self.a.prompt / statistics.median(prompt)}


class TransformersGraph(Transformers):
    """Tokens by a CUDA graph: a static cache, and the whole forward of one token replayed."""

    def token_seconds(self):
        a, torch = self.a, self.torch
        cache, token, position = self.cache, self.token, self.position
        cache.reset()
        positions = torch.arange(a.context, device=a.device)
        self.model(self.ids[:, :a.context], past_key_values=cache, cache_position=positions)
        token.copy_(self.ids[:, a.context:a.context + 1])
        position.fill_(a.context)
        self.wait()
        start = time.perf_counter()
        for _ in range(a.generate):
            self.graph.replay()
        self.wait()
        return (time.perf_counter() - start) / a.generate

    def step(self):
        logits = self.model(self.token, past_key_values=self.cache, cache_position=self.position).logits
        if self.a.sample:
            self.token.copy_(logits[:, -1:].argmax(-1))
        self.position.add_(1)

    def measure(self):
        from transformers import StaticCache

        a, torch = self.a, self.torch
        with torch.inference_mode():
            self.cache = StaticCache(config=self.model.config, max_cache_len=a.context + a.generate + 8)
            self.token = self.ids[:, :1].clone()
            self.position = torch.zeros(1, dtype=torch.long, device=a.device)
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    self.step()
            torch.cuda.current_stream().wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.step()
        row = super().measure()
        row["program"] = "transformers, static cache, CUDA graph"
        return row


def torch_dtype(name):
    import torch

    return {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[name]


def torch_bandwidth(device):
    """Bytes per second of a sum over far more memory than a cache holds."""
    import torch

    numbers, sums = torch.ones((2**32 if device == "cuda" else 2**28) // 4, device=device), 4
    seconds = []
    for _ in range(12):
        start = time.perf_counter()
        for _ in range(sums):
            total = numbers.sum()
        total.item()  # waits for all sums
        seconds.append(time.perf_counter() - start)
    return sums * numbers.nbytes / statistics.median(seconds[2:])


def peer_rows(shape, a):
    kinds = [Transformers, TransformersGraph] if a.device == "cuda" else [Transformers]
    for dtype, kind in itertools.product(a.peer_dtypes.split(","), kinds):
        peer = kind(shape, dtype, a)
        try:
            yield peer.measure()
        except Exception as error:  # a version that cannot be captured must not end the comparison
            print(f"compare_transformers: {shape}, {kind.__name__}, {dtype}: {error}", file=sys.stderr)
        del peer
        gc.collect()
        if a.device == "cuda":
            import torch

            torch.cuda.empty_cache()


# ---- Tessera ---------------------------------------------------------------------------------------------------------

def tessera_row(shape, weights, a):
    """The results of bench_generate for one format; None if it refuses, after showing its error."""
    command = [a.program, "--shape", str(shape), "--device", a.device, "--weights", weights, "--prompt", str(a.prompt),
               "--context", str(a.context), "--generate", str(a.generate), "--repeat", str(a.repeat),
               "--step", str(a.prompt), "--threads", str(a.threads)]
    if a.device == "cuda":
        command += ["--dtype", "f16"]
    if a.sample:
        command += ["--sample"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout)
    print(f"compare_transformers: {shape}, {weights}: {done.stderr.strip()}", file=sys.stderr)
    return None


def as_table_row(row, a):
    return {"program": "Tessera", "weights": row["weights"], "activations": row["dtype"],
            "weight_bytes": row["weight_bytes"], "bytes_per_token": row["bytes_per_token"],
            "ms_per_token": row["ms_per_token"], "ms_min": row["spread_ms"][0], "ms_max": row["spread_ms"][1],
            "prompt_tokens_per_s": row[f"pp{a.prompt}"]}


# ---- the table -------------------------------------------------------------------------------------------------------

def add_floor(row, bandwidth):
    row["tokens_per_s"] = 1e3 / row["ms_per_token"]
    row["floor_ms"] = 1e3 * row["bytes_per_token"] / bandwidth
    row["floor_share"] = row["floor_ms"] / row["ms_per_token"]


def size(count):
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def markdown(rows, heading):
    lines = [textwrap.fill(heading, 120, break_on_hyphens=False), "", "| shape | program | weights | activations | bytes | ms per token | min to max | tokens/s | "
             "prompt, tokens/s | floor, ms | floor / time |", "|" + "---|" * 11]
    for r in rows:
        lines.append(f"| {r['shape']} | {r['program']} | {r['weights']} | {r['activations']} | {size(r['weight_bytes'])} | "
                     f"{r['ms_per_token']:.3f} | {r['ms_min']:.3f} to {r['ms_max']:.3f} | {r['tokens_per_s']:.1f} | "
                     f"{r['prompt_tokens_per_s']:,.0f} | {r['floor_ms']:.3f} | {100 * r['floor_share']:.0f}% |")
    return "\n".join(lines) + "\n"


def heading(a, bandwidths):
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
    return (f"{time.strftime('%Y-%m-%d')}, commit {commit.stdout.strip() or 'unknown'}, {device}{versions}. Batch 1, random "
            f"weights and tokens; prompt of {a.prompt} tokens into an empty cache; {a.generate} tokens one by one after "
            f"{a.context}. Medians of {a.repeat} runs. Memory read: {rates}; the floor uses the faster. Made by "
            f"bench/peers/compare_transformers.py.")


def write(rows, a, bandwidths):
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / "decode_table.md").write_text(markdown(rows, heading(a, bandwidths)))
    with open(a.out / "decode_table.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()}
                         for row in rows)
    for shape in dict.fromkeys(row["shape"] for row in rows):
        bars = []
        for row in (row for row in rows if row["shape"] == shape):
            ours = row["program"] == "Tessera"
            bars.append((f"{row['program'].split(',')[0]}, {row['weights']}", round(row["ms_per_token"], 3),
                         plot.COLOURS["accent" if ours else "plain"]))
            if ours:
                bars.append((f"floor of {row['weights']}", round(row["floor_ms"], 3), plot.COLOURS["muted"]))
        note = f"batch 1, after {a.context} tokens; floor: bytes read by a token over the measured bandwidth"
        (a.out / f"decode_{shape}.svg").write_text(plot.draw(f"Time per token, {shape}", note, "ms", bars))


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shapes", nargs="+", type=pathlib.Path, default=SHAPES, metavar="FILE", help="config.json files")
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--weights", default=",".join(WEIGHTS), help="weight formats for bench_generate")
    p.add_argument("--peer-dtypes", default="f16,bf16", help="dtypes for transformers")
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--context", type=int, default=128)
    p.add_argument("--generate", type=int, default=32)
    p.add_argument("--repeat", type=int, default=5)
    p.add_argument("--threads", type=int, default=2, help="CPU threads of both programs")
    p.add_argument("--program", default=str(ROOT / "build/bin/bench_generate"))
    p.add_argument("--sample", action="store_true", help="draw each token and feed it back, on both sides")
    p.add_argument("--without-transformers", action="store_true", help="run Tessera only; needs no torch")
    p.add_argument("--out", type=pathlib.Path, required=True, help="folder for the table and the plots")
    a = p.parse_args()
    for file in [*a.shapes, pathlib.Path(a.program)]:
        if not file.is_file():
            p.error(f"{file} is not there")
    return a


def start_torch(a, bandwidths):
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        sys.exit(f"compare_transformers: {error}; pip install torch transformers, or use --without-transformers")
    if a.device == "cuda" and not torch.cuda.is_available():
        sys.exit("compare_transformers: torch finds no GPU here; use --device cpu to run without one")
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    bandwidths["torch"] = torch_bandwidth(a.device)


def main():
    a = arguments()
    rows, bandwidths, refused = [], {}, 0
    if not a.without_transformers:
        start_torch(a, bandwidths)
    for shape in a.shapes:
        found = [] if a.without_transformers else [*peer_rows(shape, a)]
        for weights in a.weights.split(","):
            row = tessera_row(shape, weights, a)
            if row is None:
                refused += 1
                continue
            found.append(as_table_row(row, a))
            bandwidths["bench_generate"] = max(row["read_bandwidth"], bandwidths.get("bench_generate", 0))
        name = shape.stem if shape.stem != "config" else shape.parent.name
        rows += [{**row, "shape": name} for row in found]
        for row in rows:
            add_floor(row, max(bandwidths.values()))
        if rows:
            write(rows, a, bandwidths)  # after each shape, so that nothing measured is lost
    if rows:
        print((a.out / "decode_table.md").read_text())
    sys.exit(1 if refused else 0)


if __name__ == "__main__":
    main()
