#!/usr/bin/env python3
"""Measures `tessera serve` under load, beside llama.cpp's server on the same machine in the same minutes.

    python bench/peers/compare_serve.py                                  the bundled model, our server alone
    python bench/peers/compare_serve.py --llama PATH/llama-server        a random model in Pythia-160M's shape, 4 bits, both

Some clients (--clients) send one request after the other for --seconds: prompts of 32-512 random token ids, answers of 32-256
tokens, drawn from a seed, so that every server gets the same requests. Answers are streamed. Requests that are still running at
the end count up to that point. Prints a Markdown table; --out FILE writes it to a file too. With --llama it needs numpy and gguf
from PyPI.

With --trace FILE (bench/traces) the requests come at the times of the trace instead, and all of them are answered. Those with a
prefix share it.
"""
import argparse
import contextlib
import dataclasses
import http.client
import json
import pathlib
import random
import re
import shlex
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMPT, ANSWER = (32, 512), (32, 256)


@dataclasses.dataclass
class Load:
    """The results of the clients of one run."""
    clients: int
    seconds: float
    requests: int = 0
    tokens: int = 0
    first: list[float] = dataclasses.field(default_factory=list)
    each: list[float] = dataclasses.field(default_factory=list)

    def row(self, name: str) -> str:
        def two(values: list[float]) -> str:
            values = sorted(values)
            return f"{statistics.median(values) * 1e3:.1f}, {values[int(0.95 * (len(values) - 1))] * 1e3:.1f}" if values else "-"
        return f"| {self.clients} | {name} | {self.requests / self.seconds:.2f} | {self.tokens / self.seconds:.0f} | {two(self.first)} | {two(self.each)} |"


def stream(port: int, body: dict, end: float, load: Load, lock: threading.Lock) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    began = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"status {response.status}: {response.read()[:300]!r}")
    times, done = [], False
    for line in response:
        now = time.monotonic()
        if now > end:
            break
        if line.startswith(b"data: [DONE]"):
            done = True
            break
        if line.startswith(b"data: ") and b'"finish_reason":null' in line.replace(b" ", b""):
            times.append(now)
    connection.close()
    with lock:
        load.tokens += len(times)
        load.requests += done
        if times:
            load.first.append(times[0] - began)
        if done and len(times) > 1:
            load.each.append((times[-1] - times[0]) / (len(times) - 1))


def run_clients(client: Callable[..., None], arguments: Iterable[tuple]) -> None:
    """Runs client() in a thread for each of the arguments. Fails if one of them fails."""
    failed = []

    def guarded(*of_one: object) -> None:
        try:
            client(*of_one)
        except (OSError, RuntimeError, http.client.HTTPException) as error:
            failed.append(str(error))

    threads = [threading.Thread(target=guarded, args=of_one) for of_one in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise RuntimeError(f"{len(failed)} clients failed: {failed[0]}")


def run_load(port: int, clients: int, seconds: float, vocab: int, seed: int) -> Load:
    load, lock = Load(clients, seconds), threading.Lock()
    end = time.monotonic() + seconds

    def client(number: int) -> None:
        rng = random.Random(seed * 1000 + number)
        while time.monotonic() < end:
            prompt = [rng.randrange(256, vocab) for _ in range(rng.randint(*PROMPT))]
            stream(port, {"prompt": prompt, "max_tokens": rng.randint(*ANSWER), "temperature": 0, "ignore_eos": True, "stream": True}, end, load, lock)

    run_clients(client, ((i,) for i in range(clients)))
    return load


def run_trace(port: int, trace: pathlib.Path, vocab: int) -> Load:
    """All requests of a trace, each at its time."""
    arrivals = [json.loads(line) for line in trace.read_text().splitlines()]
    load, lock = Load(len(arrivals), 0), threading.Lock()
    shared = [random.Random(0).randrange(256, vocab) for _ in range(max(a["prefix"] for a in arrivals) + 1)]
    start = time.monotonic()

    def client(number: int, arrival: dict) -> None:
        rng = random.Random(number + 1)
        own = [rng.randrange(256, vocab) for _ in range(arrival["prompt"] - arrival["prefix"])]
        body = {"prompt": shared[:arrival["prefix"]] + own, "max_tokens": arrival["answer"], "temperature": 0, "ignore_eos": True, "stream": True}
        time.sleep(max(0, start + arrival["at"] - time.monotonic()))
        stream(port, body, float("inf"), load, lock)

    run_clients(client, enumerate(arrivals))
    load.seconds = time.monotonic() - start
    return load


@contextlib.contextmanager
def started(command: list[str], port: int) -> Iterator[int]:
    """The server's port. `port` 0: the server reports which."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE if port == 0 else subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
    try:
        if port == 0:
            port = int(re.search(r"http://[^ ]*:(\d+)", process.stdout.readline())[1])
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start")
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(60)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def byte_characters() -> list[str]:
    """The 256 characters that byte-level tokenizers write bytes with."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


def random_model(work: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path, int]:
    """The same weights and vocabulary as a checkpoint and as a GGUF file."""
    import compare_llama_cpp as files

    shape = files.SHAPES["pythia-160m"]
    layers, hidden, _, feed_forward, vocab = shape
    tokens = [*byte_characters(), *(f"w{i}" for i in range(vocab - 256))]
    folder, gguf = work / "pythia-160m-serve", work / "pythia-160m-serve-q4_0.gguf"
    if not (folder / "model.safetensors").exists() or not gguf.exists():
        parts = list(files.tensors(layers, hidden, feed_forward, vocab))
        files.write_checkpoint(folder, shape, parts)
        model = {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": []}
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": level,
                                                           "post_processor": None, "decoder": level, "model": model}))
        files.write_gguf(gguf, "q4_0", shape, parts, tokens)
    return folder, gguf, vocab


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/bin/tessera")
    parser.add_argument("--model", help="folder of a checkpoint; the bundled model unless given")
    parser.add_argument("--llama", help="llama.cpp's llama-server")
    parser.add_argument("--clients", default="1,8,32,64")
    parser.add_argument("--seconds", type=float, default=60, help="duration of each run (default: a minute)")
    parser.add_argument("--device", default="cpu", help="where our server runs: auto, cpu or cuda (default: cpu, as llama.cpp's does)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--options", default="", help="more options for our server, as one string")
    parser.add_argument("--trace", type=pathlib.Path, help="requests that come over time, from bench/traces; --clients run at once")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/peers"), help="folder for the model files")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    counts = [int(n) for n in options.clients.split(",")]
    most, threads = max(counts), str(options.threads)
    ours = [options.program, "serve", "--quiet", "--port", "0", "--device", options.device, "--threads", threads, "--max-sequences", str(most)]
    ours += shlex.split(options.options)
    theirs, vocab = None, 3072
    if options.llama:
        options.work.mkdir(parents=True, exist_ok=True)
        folder, gguf, vocab = random_model(options.work)
        ours += ["--model", str(folder), "--weights", "int4", "--context", "1024"]
        theirs = [options.llama, "-m", str(gguf), "-c", str(1024 * most), "-np", str(most), "-t", threads, "--port"]
    elif options.model:
        ours += ["--model", options.model]
        vocab = json.loads((pathlib.Path(options.model) / "config.json").read_text())["vocab_size"]
    lines = ["| clients | server | requests/s | tokens/s | first token ms, median and 95% | ms a token, median and 95% |", "|---|---|---|---|---|---|"]
    def measure(port: int, count: int, name: str) -> None:
        load = run_trace(port, options.trace, vocab) if options.trace else run_load(port, count, options.seconds, vocab, 1)
        lines.append(load.row(name))
        print(lines[-1], flush=True)

    for count in counts[:1] if options.trace else counts:
        with started(ours, 0) as port:
            measure(port, count, "Tessera")
        if theirs:
            port = free_port()
            with started([*theirs, str(port)], port):
                measure(port, count, "llama.cpp")
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
