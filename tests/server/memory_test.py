"""A long run: the memory of the server stays flat. Only with --long N."""
import concurrent.futures
import json
import random
import time

import pytest
from served import post


def ask(server, seed: int) -> int:
    rng = random.Random(seed)
    asked = {"prompt": "Once upon a time " * rng.randrange(1, 20), "max_tokens": rng.randrange(1, 24), "seed": seed, "stream": rng.random() < 0.5, "n": rng.choice([1, 1, 1, 2])}
    if rng.random() < 0.2:
        asked["logprobs"] = 5
    if rng.random() < 0.05:
        asked["temperature"] = -1  # refused
    answer = server.exchange(post("/v1/completions", asked), 120)
    while answer.startswith(b"HTTP/1.1 102 "):  # an interim answer; the real one follows
        answer = answer.split(b"\r\n\r\n", 1)[1]
    return int(answer.split(b" ")[1])


def test_memory_stays_flat(start, request, artefacts):
    count = request.config.getoption("--long")
    if not count:
        pytest.skip("only with --long N")
    server = start("long")
    began, samples, failed = time.monotonic(), [], 0
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for part in range(20):
            statuses = list(pool.map(lambda seed: ask(server, seed), range(part * count // 20, (part + 1) * count // 20)))
            failed += sum(status not in (200, 400) for status in statuses)
            now = server.wait_until_idle()
            samples.append((now["process_resident_memory_bytes"], server.descriptors()))
    (artefacts / "memory.json").write_text(json.dumps({"requests": count, "seconds": round(time.monotonic() - began), "resident_bytes": [int(s[0]) for s in samples]}))
    early, late = samples[4][0], samples[-1][0]  # the first quarter fills caches and pools
    assert failed == 0
    assert late < early * 1.02 + (4 << 20), f"resident memory grew from {early / 1e6:.1f} to {late / 1e6:.1f} MB"
    assert samples[-1][1] <= samples[4][1] + 2
