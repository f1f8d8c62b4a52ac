"""The example's cluster grows under load: from one replica to two. Ray waits half a minute before it starts a replica,
so it runs on request: tests/python/run.sh --ray."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray")
if not os.environ.get("TESSERA_TEST_RAY"):
    pytest.skip("tests/python/run.sh --ray runs it", allow_module_level=True)

import ray
from ray import serve

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/python/ray_cluster.py"
START_SECONDS, GROW_SECONDS = 180, 180


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint that examples/python/ray_cluster.py prints."""
    port = free_port()
    log = tmp_path_factory.mktemp("ray") / "example.log"
    with log.open("w") as file:
        example = subprocess.Popen(
            [sys.executable, str(EXAMPLE), "--replicas", "2", "--port", str(port)], stdout=file, stderr=file
        )
    endpoint = f"http://127.0.0.1:{port}"
    try:  # whatever fails, the example and its cluster end
        deadline = time.monotonic() + START_SECONDS
        while f"OpenAI endpoint: {endpoint}/v1" not in log.read_text():
            assert example.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.5)
        ray.init(address="auto", log_to_driver=False)
        yield endpoint
    finally:
        ray.shutdown()
        example.send_signal(signal.SIGINT)
        status = example.wait(timeout=60)
    assert status == 0, log.read_text()


def running_replicas() -> int:
    states = serve.status().applications["default"].deployments["tessera_replica"].replica_states
    return states.get("RUNNING", 0)


def ask(url: str, prompt: str) -> int:
    body = json.dumps({"prompt": prompt, "max_tokens": 200, "temperature": 0, "ignore_eos": True}).encode()
    request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_second_replica_starts_under_load(url: str) -> None:
    assert running_replicas() == 1
    statuses: list[int] = []
    ending = threading.Event()

    def client(number: int) -> None:
        while not ending.is_set():
            statuses.append(ask(url, f"Story number {number} is about"))

    clients = [threading.Thread(target=client, args=(i,)) for i in range(24)]  # three times what a replica should have
    for thread in clients:
        thread.start()
    deadline = time.monotonic() + GROW_SECONDS
    while running_replicas() < 2 and time.monotonic() < deadline:
        time.sleep(1)
    grown = running_replicas()
    ending.set()
    for thread in clients:
        thread.join(timeout=180)
        assert not thread.is_alive(), "a request hangs"
    assert grown == 2
    assert set(statuses) == {200}, sorted(set(statuses))
