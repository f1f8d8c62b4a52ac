#!/usr/bin/env python3
"""Measures what HTTP adds to the engine in `tessera serve`, so that noise of the machine does not matter.

    python bench/peers/http_cost.py --model FOLDER [--options "--weights int4"]

First token: requests one after the other. The server's log has the time that the engine took from submit() to the first
token of each request; the client measures when the first token arrives. The difference is what HTTP added to that
request, the client included.

Tokens: --streams requests at once, streamed. The system reports the processor time of the server's threads: those that
compute, and all others, which parse, write and wake. The share of the others is what HTTP takes from the cores.
"""
import argparse
import json
import pathlib
import random
import re
import selectors
import shlex
import socket
import statistics
import subprocess
import tempfile
import time


def request_bytes(vocab: int, prompt: int, answer: int, seed: int) -> bytes:
    rng = random.Random(seed)
    ids = [rng.randrange(256, vocab) for _ in range(prompt)]
    body = json.dumps({"prompt": ids, "max_tokens": answer, "temperature": 0, "ignore_eos": True, "stream": True,
                       "cache_prompt": False}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def first_tokens(port: int, vocab: int, requests: int, prompt: int) -> list[float]:
    """Milliseconds from a request to its first token, as the client sees them."""
    times = []
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(requests):
            message = request_bytes(vocab, prompt, 2, i)
            began, first, seen = time.perf_counter(), None, b""
            client.sendall(message)
            while not seen.endswith(b"0\r\n\r\n"):
                seen += client.recv(65536)
                if first is None and b"data: " in seen:
                    first = time.perf_counter()
            times.append(1e3 * (first - began))
    return times


def thread_seconds(pid: int) -> dict[int, float]:
    """Processor time of each thread."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return {int(task.name): 1e-9 * int((task / "schedstat").read_text().split()[0]) for task in tasks}


def stream_all(port: int, vocab: int, streams: int, prompt: int, answer: int) -> int:
    """Tokens of `streams` requests at once."""
    ready, tokens = selectors.DefaultSelector(), 0
    tails: dict[socket.socket, bytes] = {}
    for i in range(streams):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(request_bytes(vocab, prompt, answer, 1000 + i))
        ready.register(client, selectors.EVENT_READ)
        tails[client] = b""
    while tails:
        for key, _ in ready.select():
            client = key.fileobj
            data = client.recv(65536)
            tokens += data.count(b'"finish_reason":null')
            tails[client] = (tails[client] + data)[-8:]
            if not data or tails[client].endswith(b"0\r\n\r\n"):
                ready.unregister(client)
                client.close()
                del tails[client]
    return tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/bin/tessera")
    parser.add_argument("--model", required=True)
    parser.add_argument("--options", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--requests", type=int, default=200)
    options = parser.parse_args()
    vocab = json.loads((pathlib.Path(options.model) / "config.json").read_text())["vocab_size"]
    command = [options.program, "serve", "--log-json", "--port", "0", "--device", "cpu", "--context", "1024",
               "--threads", str(options.threads), "--max-sequences", str(options.streams), "--model", options.model,
               *shlex.split(options.options)]
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            port = int(re.search(r"http://[^ ]*:(\d+)", server.stdout.readline())[1])
            while True:
                with socket.create_connection(("127.0.0.1", port)) as client:
                    client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    if client.recv(4096).startswith(b"HTTP/1.1 200"):
                        break
                time.sleep(0.1)
            first_tokens(port, vocab, 5, 32)  # warm-up
            seen = first_tokens(port, vocab, options.requests, 32)
            before, began = thread_seconds(server.pid), time.perf_counter()
            tokens = stream_all(port, vocab, options.streams, 64, 128)
            seconds = time.perf_counter() - began
            used = {tid: t - before.get(tid, 0) for tid, t in thread_seconds(server.pid).items()}
        finally:
            server.terminate()
            server.wait(30)
        log.seek(0)
        rows = [json.loads(line) for line in log if line.startswith("{")]
    engine = [row["first_ms"] for row in rows if row.get("generated_tokens") == 2][5:]
    added = sorted(a - b for a, b in zip(seen, engine, strict=True))
    by_size = sorted(used.values(), reverse=True)
    computing, others = sum(by_size[:options.threads]), sum(by_size[options.threads:])
    print(f"first token, {len(added)} requests of 32 + 2 tokens: client {statistics.median(seen):.2f} ms, "
          f"engine {statistics.median(engine):.2f} ms, difference {statistics.median(added):.3f} ms (median), "
          f"{added[int(0.95 * len(added))]:.3f} (95%)")
    print(f"{options.streams} streams: {tokens} tokens in {seconds:.2f} s, {tokens / seconds:.0f} tokens/s; "
          f"processor time: computing {computing:.2f} s, others {others:.2f} s "
          f"({100 * others / (computing + others):.2f}%), {1e6 * others / tokens:.1f} us a token")


if __name__ == "__main__":
    main()
