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
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from decode_tables import Tables, add_floors, write
from transformers_peer import KINDS, measure_peer, start_torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPES = [ROOT / "bench/shapes" / f"{name}.json" for name in ("pythia-2.8b", "pythia-6.9b", "llama-8b")]
WEIGHTS = ["f16", "int8", "int4:32", "nvfp4"]


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
    """Many sequences, by bench_engine. All prompts are read in one step, so that all sequences run side by side from then
    on."""
    for batch, context in itertools.product((batch for batch in a.batches if batch > 1), a.contexts):
        if a.late():
            return
        for row in run_bench(a.engine_program, shape, weights, a, "--streams", batch, "--prompt", context,
                             "--max-step", max(2048, batch * context)):
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


# ---- the program -----------------------------------------------------------------------------------------------------

def numbers(text):
    return [int(number) for number in text.split(",")]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shapes", nargs="+", type=pathlib.Path, default=SHAPES, metavar="FILE", help="config.json files")
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--weights", default=",".join(WEIGHTS), help="weight formats of Tessera")
    p.add_argument("--peer-dtypes", default="f16", help="dtypes of transformers")
    p.add_argument("--kinds", default="eager,compiled,graph", help="how transformers runs: eager, compiled, graph")
    p.add_argument("--batches", type=numbers, default=[1, 8, 32], help="sequences of a step")
    p.add_argument("--contexts", type=numbers, default=[128, 2048, 8192], help="tokens of each sequence before the steps")
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


def with_room(shape, a, folder):
    """The shape with room for all contexts: random weights work at positions beyond those of training too."""
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
