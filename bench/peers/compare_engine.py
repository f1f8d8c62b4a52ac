#!/usr/bin/env python3
"""Compares many streams at once with other programs, on the same machine in the same minute.

    python bench/peers/compare_engine.py --llama PATH/llama-batched-bench          on the CPU, beside llama.cpp
    python bench/peers/compare_engine.py --device cuda                             on a GPU, beside transformers

On the CPU: one random model in the shape of Pythia-160M, 4 bits, as a checkpoint and as a GGUF file (both kept in --work).
llama.cpp's batched bench and bench_engine take turns with 1, 8 and 16 streams of 128 + 128 tokens.

On a GPU: a shape in f16 (--shape, by default Pythia-2.8B's), 64 requests of the trace bench/traces/together-64.jsonl at once,
beside transformers' continuous batching with the same lengths. Needs torch and transformers.

Prints a Markdown table; --out FILE writes it there too.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STREAMS = (1, 8, 16)


def bench_engine(program: str, *arguments: str) -> list[dict]:
    """The rows that bench_engine prints."""
    out = subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def llama_streams(program: str, gguf: pathlib.Path, threads: int) -> dict[int, float]:
    """Tokens per second of all streams together, by number of streams, as llama.cpp's batched bench counts (S_TG)."""
    streams = ",".join(map(str, STREAMS))
    out = subprocess.run([program, "-m", str(gguf), "-c", "8192", "-t", str(threads), "-npp", "128", "-ntg", "128",
                          "-npl", streams, "--output-format", "jsonl"], check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return {row["pl"]: row["speed_tg"] for row in rows}


def on_the_cpu(options: argparse.Namespace) -> list[str]:
    import compare_llama_cpp as files

    shape = files.SHAPES["pythia-160m"]
    layers, hidden, _, feed_forward, vocab = shape
    folder, gguf = options.work / "pythia-160m", options.work / "pythia-160m-q4_0.gguf"
    parts = None
    if not (folder / "model.safetensors").exists() or not gguf.exists():
        parts = list(files.tensors(layers, hidden, feed_forward, vocab))
        files.write_checkpoint(folder, shape, parts)
        files.write_gguf(gguf, "q4_0", shape, parts)
    ours: dict[int, list[float]] = {n: [] for n in STREAMS}
    theirs: dict[int, list[float]] = {n: [] for n in STREAMS}
    cache = ["--cache-dtype", options.cache_dtype] if options.cache_dtype else []
    for _ in range(options.rounds):
        for n, speed in llama_streams(options.llama, gguf, options.threads).items():
            theirs[n].append(speed)
        for row in bench_engine(options.program, "--model", str(folder), "--weights", "int4:32", "--threads",
                                str(options.threads), "--streams", ",".join(map(str, STREAMS)), "--repeat", "1",
                                "--max-step", str(128 * max(STREAMS)), *cache):
            ours[row["streams"]].append(row["stream_speed"])
    lines = [f"Pythia-160M's shape, 4 bits, {options.threads} threads, 128 + 128 tokens, tokens/s of all streams together",
             "", "| streams | Tessera int4 | llama.cpp Q4_0 | ratio | Tessera, of one stream |", "|---|---|---|---|---|"]
    one = statistics.median(ours[1])
    for n in STREAMS:
        a, b = statistics.median(ours[n]), statistics.median(theirs[n])
        lines.append(f"| {n} | {a:.0f} ({min(ours[n]):.0f}-{max(ours[n]):.0f}) | {b:.0f} ({min(theirs[n]):.0f}-{max(theirs[n]):.0f}) "
                     f"| {a / b:.2f}x | {a / one:.2f}x |")
    return lines


def transformers_batch(shape: pathlib.Path, lengths: list[tuple[int, int]]) -> float:
    """Seconds that transformers' continuous batching takes for requests of these lengths (prompt, answer)."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.generation import GenerationConfig

    config = AutoConfig.from_pretrained(shape)
    with torch.device("cuda"):
        torch.set_default_dtype(torch.float16)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="paged|sdpa").eval()
        torch.set_default_dtype(torch.float32)
    source = torch.Generator().manual_seed(1)
    prompts = [torch.randint(0, config.vocab_size, (n,), generator=source).tolist() for n, _ in lengths]
    answers = {answer for _, answer in lengths}
    assert len(answers) == 1, "all answers must have one length"
    generation = GenerationConfig(max_new_tokens=answers.pop(), do_sample=False, eos_token_id=-1, pad_token_id=0)
    model.generate_batch(inputs=prompts[:4], generation_config=generation, progress_bar=False)  # warm-up
    torch.cuda.synchronize()
    start = time.perf_counter()
    outputs = model.generate_batch(inputs=prompts, generation_config=generation, progress_bar=False)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    made = sum(len(output.generated_tokens) for output in outputs.values())
    assert made == sum(answer for _, answer in lengths), f"transformers made {made} tokens"
    return seconds


def on_a_gpu(options: argparse.Namespace) -> list[str]:
    trace = ROOT / "bench/traces/together-64.jsonl"
    shape = options.shape
    lengths = [(r["prompt"], r["answer"]) for r in map(json.loads, trace.read_text().splitlines())]
    row = bench_engine(options.program, "--shape", str(shape), "--device", "cuda", "--weights", "f16", "--trace", str(trace),
                       "--max-sequences", "64", "--max-step", "2048")[0]
    answers = sum(answer for _, answer in lengths)
    lines = [f"The shape {shape.stem}, f16, {len(lengths)} requests at once, prompts of 32-512 tokens, {lengths[0][1]} tokens each", "",
             "| | answer tokens/s | first token ms, median and 95% | ms a token, median and 95% |", "|---|---|---|---|",
             f"| Tessera | {row['answer_speed']:.0f} | {row['first_ms'][0]:.0f}, {row['first_ms'][1]:.0f} | "
             f"{row['token_ms'][0]:.2f}, {row['token_ms'][1]:.2f} |"]
    if not options.without_transformers:
        theirs = answers / transformers_batch(shape, lengths)
        lines.append(f"| transformers, continuous batching | {theirs:.0f} ({row['answer_speed'] / theirs:.1f}x) | | |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--program", default="build/bin/bench_engine")
    parser.add_argument("--shape", type=pathlib.Path, default=ROOT / "bench/shapes/pythia-2.8b.json", help="on a GPU: a config.json")
    parser.add_argument("--llama", help="llama.cpp's llama-batched-bench")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/peers"), help="folder for the model files")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="number of turns that the two programs take")
    parser.add_argument("--cache-dtype", help="of our keys and values on the CPU; llama.cpp's are f16")
    parser.add_argument("--without-transformers", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if options.device == "cpu" and not options.llama:
        parser.error("--llama is missing: the path of llama.cpp's llama-batched-bench")
    if not options.shape.is_file():
        parser.error(f"--shape: {options.shape} is not there")
    lines = on_a_gpu(options) if options.device == "cuda" else on_the_cpu(options)
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
