"""Two replicas on Ray, one of them killed by SIGKILL under load. Ray takes half a minute to start and a gigabyte of
memory, so it runs on request: tests/python/run.sh --ray."""

import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("ray")
if not os.environ.get("TESSERA_TEST_RAY"):
    pytest.skip("tests/python/run.sh --ray runs it", allow_module_level=True)

import ray
from ray import serve

import tessera
import tessera.ray

PORT = 8123
URL = f"http://127.0.0.1:{PORT}"
TOKENS = 24


def ask(prompt: str, **more: object) -> tuple[int, str]:
    body = json.dumps({"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, **more}).encode()
    request = urllib.request.Request(URL + "/v1/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def text_of(answer: str) -> str:
    return json.loads(answer)["choices"][0]["text"]


def streamed(answer: str) -> tuple[str, str | None]:
    """The text of a stream, and the sentence of its error event."""
    text, problem = "", None
    for line in answer.splitlines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            if "error" in event:
                problem = event["error"]["message"]
            else:
                text += event["choices"][0]["text"]
    return text, problem


@pytest.fixture(scope="module")
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    try:  # a cluster that fails to start must not be there for the next test
        serve.start(http_options={"host": "127.0.0.1", "port": PORT})
        application = tessera.ray.deployment(
            tessera.default_model(),
            min_replicas=2,
            max_replicas=2,
            cpus=0.5,
            health_seconds=1,
            arguments=("--threads", "1"),
        )
        serve.run(application, route_prefix="/")
        tessera.ray.wait_until_ready(URL, 120)
        yield
        serve.shutdown()
    finally:
        ray.shutdown()


def replica_of(prompt: str | None) -> tuple[int, int]:
    """The process that answers this prompt, and its server's; without a prompt, any."""
    handle = serve.get_deployment_handle("tessera_replica", "default")
    if prompt is not None:
        key = tessera.ray.prefix_key(json.dumps({"prompt": prompt}).encode())
        handle = handle.options(multiplexed_model_id=key)
    return handle.process.remote().result()


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_keys_go_by_the_beginning() -> None:
    def key(**body: object) -> str:
        return tessera.ray.prefix_key(json.dumps(body).encode())

    assert key(prompt="a" * 300 + "b") == key(prompt="a" * 300 + "c", max_tokens=3) != key(prompt="other")
    turns = [[{"role": "user", "content": "x" * length}] for length in (400, 500)]
    assert key(messages=turns[0]) == key(messages=turns[1])
    assert key(model="m") == "" and tessera.ray.prefix_key(b"not json") == ""


def test_a_replica_that_is_killed_under_load(cluster) -> None:
    prompts = [f"Once upon a time there was a {name}" for name in ("dog", "cat", "bird", "fish", "bear", "frog")]
    expected = {}
    for prompt in prompts:
        status, answer = ask(prompt)
        assert status == 200, answer
        expected[prompt] = text_of(answer)
    assert streamed(ask(prompts[0], stream=True)[1]) == (expected[prompts[0]], None)

    # The same beginning, the same replica.
    assert len({replica_of(prompts[0]) for _ in range(6)}) == 1

    outcomes: list[str] = []
    ending = threading.Event()

    def client(number: int) -> None:
        while not ending.is_set():
            prompt = prompts[number % len(prompts)]
            number += 1
            if number % 2:
                status, answer = ask(prompt)
                if status == 200 and answer.startswith("{"):
                    outcomes.append("right" if text_of(answer.splitlines()[0]) == expected[prompt] else "wrong")
                else:
                    outcomes.append("error" if "try again" in answer else f"unclear: {status} {answer[:200]}")
            else:
                text, problem = streamed(ask(prompt, stream=True)[1])
                if problem is None:
                    outcomes.append("right" if text == expected[prompt] else "wrong")
                else:
                    outcomes.append("error" if expected[prompt].startswith(text) else "wrong")

    clients = [threading.Thread(target=client, args=(i,)) for i in range(4)]
    for thread in clients:
        thread.start()
    time.sleep(1.5)
    victim, server = replica_of(prompts[0])
    before = len(outcomes)
    os.kill(victim, signal.SIGKILL)
    time.sleep(6)
    ending.set()
    for thread in clients:
        thread.join(timeout=60)
        assert not thread.is_alive(), "a request hangs"
    assert not is_alive(server), "its server outlived the replica"
    assert set(outcomes) <= {"right", "error"}, sorted(set(outcomes))
    assert "right" in outcomes[before:], "nobody answered after the kill"

    # It comes back: two processes answer, and neither is the one that died.
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        processes = {replica_of(None)[0] for _ in range(12)}
        if len(processes) == 2 and victim not in processes:
            break
        time.sleep(0.5)
    assert len(processes) == 2 and victim not in processes
    assert text_of(ask(prompts[0])[1]) == expected[prompts[0]]
    print({kind: outcomes.count(kind) for kind in set(outcomes)})
