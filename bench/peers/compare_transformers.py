#!/usr/bin/env python3
"""Compares Tessera with transformers: the same shapes with random weights, one device, one run.

    python bench/peers/compare_transformers.py --out docs/results/h200
    python bench/peers/compare_transformers.py --out /tmp/t --shapes bench/shapes/llama-8b.json --batches 1,8 \\
        --contexts 2048 --prompts 2048 --kinds eager,graph --weights f16,nvfp4 --minutes 5

For each shape (a config.json) it times transformers in --peer-dtypes: eagerly, compiled with a static cache
(torch.compile, "reduce-overhead"), and with a static cache replayed from a CUDA graph; then Tessera in every weight
format, by build/bin/bench_generate for one sequence and build/bin/bench_engine for more. It writes one table as
decode_table.md and decode_table.csv, prompts as prompt_table.md and prompt_table.csv, and one plot per shape as
decode_SHAPE.svg into --out. All weights are made on the device. Tokens are random. With --sample, Tessera's are drawn
by generate(), and the graph of transformers draws the most likely one; those of bench_engine are always drawn.

A step is one token of each of --batches sequences, all after --contexts others. Its time is the mean over --generate
steps with one wait at the end (bench_engine: the median step). The table shows the median, the smallest and the largest
of --repeat such runs (bench_engine: median and 95th percentile of steps). The floor of a step is the time to read its
bytes (linear layers, head, keys, values) at the fastest memory rate of this run: that of torch summing up a large
tensor, or that of bench_generate (on a GPU a copy, with bytes read and bytes written counted).

A prompt is read into an empty cache in one pass, with the logits of its last token. Its floor is the time of its linear
layers' products at the rate of torch's matrix product of 8192 x 8192 x 8192 (GPU only).

After --minutes no further measurement is begun; what has been measured is written. Needs torch and transformers (4.56
or later), except with --without-transformers.
"""
import argparse
import contextlib
import csv
import gc
import itertools
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import plot  # noqa: E402

SHAPES = [ROOT / "bench/shapes" / f"{name}.json" for name in ("pythia-2.8b", "pythia-6.9b", "llama-8b")]
WEIGHTS = ["f16", "int8", "int4:32", "nvfp4"]
COLUMNS = ["shape", "program", "weights", "activations", "batch", "context", "weight_bytes", "bytes_per_step",
           "ms_per_step", "ms_min", "ms_max", "tokens_per_s", "floor_ms", "floor_share"]
PROMPT_COLUMNS = ["shape", "program", "weights", "activations", "prompt", "ms", "tokens_per_s", "floor_ms",
                  "floor_share"]


# ---- transformers ----------------------------------------------------------------------------------------------------

class Transformers:
    """One shape in one dtype, with random weights made on the device."""

    kind = "eager"

    def __init__(self, shape, dtype, a):
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        self.torch, self.a, self.dtype = torch, a, dtype
        config = AutoConfig.from_pretrained(shape)
        with torch.device(a.device):
            self.model = AutoModelForCausalLM.from_config(config, dtype=torch_dtype(dtype)).eval()

    def random_ids(self, batch, tokens):
        return self.torch.randint(self.model.config.vocab_size, (batch, tokens), device=self.a.device)

    def wait(self):
        if self.a.device == "cuda":
            self.torch.cuda.synchronize()

    def feed(self, ids, cache):
        return self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).past_key_values

    def prompt_seconds(self, tokens):
        ids = self.random_ids(1, tokens)
        self.wait()
        start = time.perf_counter()
        self.feed(ids, None)
        self.wait()
        return time.perf_counter() - start

    def make_ready(self, batch, context):
        """Called once before the steps of a batch are timed."""

    def step_seconds(self, batch, context):
        cache = self.feed(self.random_ids(batch, context), None) if context else None
        ids = self.random_ids(batch, self.a.generate)
        self.wait()
        start = time.perf_counter()
        for i in range(self.a.generate):
            cache = self.feed(ids[:, i:i + 1], cache)
        self.wait()
        return (time.perf_counter() - start) / self.a.generate

    def bytes_per_step(self, batch, context):
        linear = sum(m.weight.nbytes for m in self.model.modules() if isinstance(m, self.torch.nn.Linear))
        config = self.model.config
        kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        seen = context + (self.a.generate + 1) // 2  # the mean, including the token itself
        return linear + 2 * batch * config.num_hidden_layers * kv_heads * head_dim * self.model.dtype.itemsize * seen

    def program(self):
        return f"transformers, {self.model.config._attn_implementation} attention"

    def about(self):
        return {"program": self.program(), "weights": self.dtype, "activations": self.dtype,
                "weight_bytes": sum(p.nbytes for p in self.model.parameters())}

    def decode_row(self, batch, context):
        with self.torch.inference_mode():
            self.make_ready(batch, context)
            self.step_seconds(batch, context)  # kernels are chosen and loaded here
            step = [1e3 * self.step_seconds(batch, context) for _ in range(self.a.repeat)]
        return {**self.about(), "batch": batch, "context": context,
                "bytes_per_step": self.bytes_per_step(batch, context), "ms_per_step": statistics.median(step),
                "ms_min": min(step), "ms_max": max(step)}

    def prompt_row(self, tokens):
        with self.torch.inference_mode():
            self.prompt_seconds(tokens)
            self.prompt_seconds(tokens)
            seconds = statistics.median(self.prompt_seconds(tokens) for _ in range(self.a.repeat))
        row = {**self.about(), "prompt": tokens, "ms": 1e3 * seconds}
        del row["weight_bytes"]
        return row


class TransformersStatic(Transformers):
    """A static cache, and the whole step of all sequences by one call. The next ones say how it is called."""

    def step(self):
        logits = self.model(self.token, past_key_values=self.cache, cache_position=self.position).logits
        if self.a.sample:
            self.token.copy_(logits[:, -1:].argmax(-1))
        self.position.add_(1)

    def make_ready(self, batch, context):
        from transformers import StaticCache

        a, torch = self.a, self.torch
        self.cache = StaticCache(config=self.model.config, max_cache_len=context + a.generate + 8)
        self.token = self.random_ids(batch, 1)
        self.position = torch.zeros(1, dtype=torch.long, device=a.device)
        self.prepare()

    def step_seconds(self, batch, context):
        a, torch = self.a, self.torch
        self.cache.reset()
        for begin in range(0, context, 2048):  # logits of all tokens at once would take too much memory
            end = min(begin + 2048, context)
            self.model(self.random_ids(batch, end - begin), past_key_values=self.cache, logits_to_keep=1,
                       cache_position=torch.arange(begin, end, device=a.device))
        self.position.fill_(context)
        self.wait()
        start = time.perf_counter()
        for _ in range(a.generate):
            self.replay()
        self.wait()
        return (time.perf_counter() - start) / a.generate


class TransformersGraph(TransformersStatic):
    kind = "graph"

    def program(self):
        return "transformers, static cache, CUDA graph"

    def prepare(self):
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.position.zero_()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()
        self.replay = self.graph.replay


class TransformersCompiled(TransformersStatic):
    kind = "compiled"

    def program(self):
        return "transformers, static cache, torch.compile"

    def prepare(self):
        self.torch._dynamo.reset()
        compiled = self.torch.compile(self.model, mode="reduce-overhead", dynamic=False)

        def replay():
            logits = compiled(self.token, past_key_values=self.cache, cache_position=self.position).logits
            if self.a.sample:
                self.token.copy_(logits[:, -1:].argmax(-1))
            self.position.add_(1)

        self.replay = replay


KINDS = {kind.kind: kind for kind in (Transformers, TransformersCompiled, TransformersGraph)}


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


def torch_matrix_rate():
    """Operations per second of a large product in bf16, on random numbers."""
    import torch

    n = 8192
    x, y = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    seconds = []
    for _ in range(12):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(4):
            torch.matmul(x, y)
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - start) / 4)
    return 2 * n**3 / statistics.median(seconds[2:])


@contextlib.contextmanager
def shown(what):
    """A configuration that a program cannot run must not end the comparison."""
    try:
        yield
    except Exception as error:
        print(f"compare_transformers: {what}: {str(error).splitlines()[0] if str(error) else error!r}", file=sys.stderr)


def free_memory(a):
    gc.collect()
    if a.device == "cuda":
        import torch

        torch.cuda.empty_cache()


def measure_peer(shape, a, tables):
    """transformers in all dtypes and kinds."""
    for dtype, kind in itertools.product(a.peer_dtypes.split(","), a.kinds.split(",")):
        if a.late() or (kind != "eager" and a.device != "cuda"):
            continue
        peer = KINDS[kind](shape, dtype, a)
        for batch, context in itertools.product(a.batches, a.contexts):
            if a.late():
                break
            with shown(f"{shape.stem}, {kind}, {dtype}, batch {batch}, context {context}"):
                tables.decode.append(peer.decode_row(batch, context))
            peer.cache = peer.graph = peer.replay = None
            free_memory(a)
        for tokens in a.prompts if kind == "eager" else []:
            with shown(f"{shape.stem}, {kind}, {dtype}, prompt of {tokens}"):
                tables.prompt.append(peer.prompt_row(tokens))
        del peer
        free_memory(a)


# ---- Tessera ---------------------------------------------------------------------------------------------------------

def run_bench(program, shape, weights, a, *arguments):
    """The JSON rows of a benchmark; none if it refuses, after showing its error."""
    command = [program, "--shape", str(shape), "--device", a.device, "--weights", weights, "--repeat", str(a.repeat),
               "--generate", str(a.generate), "--threads", str(a.threads), *map(str, arguments)]
    if a.device == "cuda":
        command += ["--dtype", "f16"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return [json.loads(line) for line in done.stdout.splitlines()]
    a.refused += 1
    print(f"compare_transformers: {shape.stem}, {weights}: {done.stderr.strip()}", file=sys.stderr)
    return []


def measure_alone(shape, weights, a, tables, bandwidths):
    """One sequence, and prompts, by bench_generate: a context and a prompt with each call."""
    for i in range(max(len(a.contexts) if 1 in a.batches else 0, len(a.prompts))):
        if a.late():
            return
        context, prompt = a.contexts[i % len(a.contexts)], a.prompts[i % len(a.prompts)]
        extra = ["--sample"] if a.sample else []
        for row in run_bench(a.generate_program, shape, weights, a, "--context", context, "--prompt", prompt,
                             "--step", prompt, *extra):
            about = {"program": "Tessera", "weights": row["weights"], "activations": row["dtype"]}
            bandwidths["bench_generate"] = max(row["read_bandwidth"], bandwidths.get("bench_generate", 0))
            if i < len(a.prompts):
                tables.prompt.append({**about, "prompt": prompt, "ms": 1e3 * prompt / row[f"pp{prompt}"]})
            if i < len(a.contexts) and 1 in a.batches:
                tables.decode.append({**about, "batch": 1, "context": context, "weight_bytes": row["weight_bytes"],
                                      "bytes_per_step": row["bytes_per_token"], "ms_per_step": row["ms_per_token"],
                                      "ms_min": row["spread_ms"][0], "ms_max": row["spread_ms"][1]})


def measure_together(shape, weights, a, tables, weight_bytes):
    """Many sequences, by bench_engine."""
    for batch, context in itertools.product((batch for batch in a.batches if batch > 1), a.contexts):
        if a.late():
            return
        for row in run_bench(a.engine_program, shape, weights, a, "--streams", batch, "--prompt", context,
                             "--max-step", 2048):
            tables.decode.append({"program": "Tessera", "weights": row["weights"], "activations": row["dtype"],
                                  "batch": batch, "context": context, "weight_bytes": weight_bytes,
                                  "bytes_per_step": round(row["floor_ms"] * row["read_bandwidth"] / 1e3),
                                  "ms_per_step": row["step_ms"], "ms_min": row["step_ms"],
                                  "ms_max": row["step_ms_p95"]})


def measure_tessera(shape, a, tables, bandwidths):
    for weights in a.weights.split(","):
        measure_alone(shape, weights, a, tables, bandwidths)
        known = [row["weight_bytes"] for row in tables.decode if row["weights"] == weights and "weight_bytes" in row]
        measure_together(shape, weights, a, tables, known[0] if known else 0)


# ---- the tables ------------------------------------------------------------------------------------------------------

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
    commit = os.environ.get("TESSERA_COMMIT") or commit.stdout.strip() or "unknown"  # the first: on machines without git
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


def write_plots(rows, a):
    context = a.contexts[0]
    alone = [row for row in rows if row["batch"] == 1 and row["context"] == context]
    for shape in dict.fromkeys(row["shape"] for row in alone):
        bars = []
        for row in (row for row in alone if row["shape"] == shape):
            ours = row["program"] == "Tessera"
            bars.append((f"{row['program'].split(',')[0]}, {row['weights']}", round(row["ms_per_step"], 3),
                         plot.COLOURS["accent" if ours else "plain"]))
            if ours:
                bars.append((f"floor of {row['weights']}", round(row["floor_ms"], 3), plot.COLOURS["muted"]))
        note = f"batch 1, after {context} tokens; floor: bytes read by a token over the measured bandwidth"
        (a.out / f"decode_{shape}.svg").write_text(plot.draw(f"Time per token, {shape}", note, "ms", bars))


def write(tables, a, bandwidths, matrix_rate):
    a.out.mkdir(parents=True, exist_ok=True)
    about = heading(a, bandwidths, matrix_rate)
    (a.out / "decode_table.md").write_text(decode_markdown(tables.decode, about))
    write_csv(a.out / "decode_table.csv", COLUMNS, tables.decode)
    (a.out / "prompt_table.md").write_text(prompt_markdown(tables.prompt, about))
    write_csv(a.out / "prompt_table.csv", PROMPT_COLUMNS, tables.prompt)
    write_plots(tables.decode, a)


# ---- the program -----------------------------------------------------------------------------------------------------

def numbers(text):
    return [int(number) for number in text.split(",")]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shapes", nargs="+", type=pathlib.Path, default=SHAPES, metavar="FILE", help="config.json files")
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--weights", default=",".join(WEIGHTS), help="weight formats of Tessera")
    p.add_argument("--peer-dtypes", default="f16", help="dtypes of transformers")
    p.add_argument("--kinds", default="eager,compiled,graph", help="of transformers: eager, compiled, graph")
    p.add_argument("--batches", type=numbers, default=[1, 8, 32], help="sequences of a step")
    p.add_argument("--contexts", type=numbers, default=[128, 2048, 8192], help="tokens of each before the steps")
    p.add_argument("--prompts", type=numbers, default=[512, 2048], help="tokens of a prompt")
    p.add_argument("--generate", type=int, default=32, help="steps that are timed together")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--minutes", type=float, default=1e9, help="begin no measurement after this time")
    p.add_argument("--threads", type=int, default=2, help="CPU threads of both programs")
    p.add_argument("--generate-program", default=str(ROOT / "build/bin/bench_generate"))
    p.add_argument("--engine-program", default=str(ROOT / "build/bin/bench_engine"))
    p.add_argument("--sample", action="store_true", help="draw each token and feed it back, on both sides")
    p.add_argument("--without-transformers", action="store_true", help="run Tessera only; needs no torch")
    p.add_argument("--out", type=pathlib.Path, required=True, help="folder for the tables and the plots")
    a = p.parse_args()
    for file in [*a.shapes, pathlib.Path(a.generate_program), pathlib.Path(a.engine_program)]:
        if not file.is_file():
            p.error(f"{file} is not there")
    unknown = set(a.kinds.split(",")) - set(KINDS)
    if unknown:
        p.error(f"--kinds has {', '.join(KINDS)}, not {', '.join(sorted(unknown))}")
    end = time.monotonic() + 60 * a.minutes
    a.late = lambda: time.monotonic() > end
    a.refused = 0
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
    free_memory(a)
    return torch_matrix_rate() if a.device == "cuda" else None


def with_room(shape, a, folder):
    """The shape with room for all contexts: random weights do not mind positions beyond those of training."""
    config = json.loads(shape.read_text())
    most = max(*a.prompts, max(a.contexts) + a.generate + 8)
    config["max_position_embeddings"] = max(config.get("max_position_embeddings", 0), most)
    name = shape.stem if shape.stem != "config" else shape.parent.name
    path = pathlib.Path(folder) / f"{name}.json"
    path.write_text(json.dumps(config))
    return path


def main():
    a = arguments()
    tables, bandwidths, matrix_rate = Tables(), {}, None
    if not a.without_transformers:
        matrix_rate = start_torch(a, bandwidths)
    with tempfile.TemporaryDirectory() as folder:
        for given in a.shapes:
            if a.late():
                break
            shape, found = with_room(given, a, folder), Tables()
            if not a.without_transformers:
                measure_peer(shape, a, found)
            measure_tessera(shape, a, found, bandwidths)
            add_floors(found, shape, max(bandwidths.values(), default=1), matrix_rate)
            tables.decode += [{"shape": shape.stem, **row} for row in found.decode]
            tables.prompt += [{"shape": shape.stem, **row} for row in found.prompt]
            write(tables, a, bandwidths, matrix_rate)  # after each shape, so that nothing measured is lost
    for name in ("decode_table.md", "prompt_table.md"):
        if (a.out / name).is_file():
            print((a.out / name).read_text())
    sys.exit(1 if a.refused else 0)


if __name__ == "__main__":
    main()
