"""Replicas of a model on a Ray cluster: an OpenAI endpoint that grows and shrinks with its queue.

    client -> Ray's HTTP proxy -> Gateway -> Replica: a `tessera serve` of its own
                                     |
                                     +-- requests that begin alike go to the same replica

Needs `pip install "ray[serve]"`. docs/CLUSTER.md says how to run it on one machine and on several.
"""

import asyncio
import contextlib
import ctypes
import hashlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
from ray import serve
from ray.exceptions import RayError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from .program import PROGRAM

__all__ = ["Gateway", "Replica", "deployment", "prefix_key"]

PREFIX_CHARACTERS = 256  # prompts that share so many go to one replica
READY_SECONDS = 600.0  # to load a model
SILENT_SECONDS = 120.0  # without a byte of an answer


def prefix_key(body: bytes) -> str:
    """The key of a request's first words: the prompt, or the first messages of a chat. Empty where there are none."""
    try:
        request = json.loads(body)
        start = request.get("messages") or request.get("prompt") or ""
    except (ValueError, AttributeError):
        return ""
    text = start if isinstance(start, str) else json.dumps(start)
    return hashlib.sha256(text[:PREFIX_CHARACTERS].encode()).hexdigest()[:16] if text else ""


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a replica that is killed leaves no server behind


class Replica:
    """One `tessera serve` on a free port of this machine, and the way to it."""

    def __init__(self, model: str, arguments: Sequence[str], program: str) -> None:
        command = [program, "serve", "--model", model, "--host", "127.0.0.1", "--port", "0", "--quiet", *arguments]
        # The thread that forks must live as long as the server: PR_SET_PDEATHSIG goes by it.
        self._lines: list[str] = []
        self._address = ""
        started = threading.Event()
        threading.Thread(target=self._run, args=(command, started), daemon=True).start()
        if not started.wait(READY_SECONDS) or not self._address:
            raise RuntimeError("tessera serve did not start: " + " ".join(self._lines[-3:]))
        self._session: aiohttp.ClientSession | None = None

    def _run(self, command: list[str], started: threading.Event) -> None:
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=_die_with_parent
        )
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines = [*self._lines[-20:], line.strip()]
            if found := re.search(r"serves .* at (http://\S+)", line):
                self._address = found[1]
                started.set()
        self._process.wait()
        started.set()

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:  # made in the loop that uses it
            timeout = aiohttp.ClientTimeout(total=None, sock_read=SILENT_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout)
        return self._session

    async def check_health(self) -> None:
        """Ray asks now and then; what is raised here makes it start the replica anew."""
        if self._process.poll() is not None:
            raise RuntimeError(f"tessera serve has ended with {self._process.returncode}")
        async with self._http().get(self._address + "/health") as response:
            if response.status != 200:
                raise RuntimeError(f"tessera serve answers /health with {response.status}")

    @serve.multiplexed(max_num_models_per_replica=1024)
    async def _remember(self, key: str) -> str:
        """Tells Ray's router that prompts with this beginning are known here."""
        return key

    async def process(self) -> tuple[int, int]:
        """Ids of the replica's and of its server's process: for tests."""
        return os.getpid(), self._process.pid

    async def answer(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> AsyncIterator[Any]:
        """The status and the type of the answer first, then its bytes as they come."""
        if key := serve.get_multiplexed_model_id():
            await self._remember(key)
        async with self._http().request(method, self._address + path, data=body, headers=headers) as response:
            yield response.status, response.headers.get("Content-Type", "application/json")
            async for piece in response.content.iter_any():
                yield piece


class Gateway:
    """Hands each request to a replica. What has not begun to answer is tried again when its replica dies."""

    def __init__(self, replicas: Any, by_prefix: bool, attempts: int) -> None:
        self._replicas = replicas.options(stream=True)
        self._by_prefix = by_prefix
        self._attempts = attempts

    async def __call__(self, request: Request) -> Response:
        body = await request.body()
        path = request.url.path + ("?" + request.url.query if request.url.query else "")
        headers = {name: request.headers[name] for name in ("content-type", "authorization") if name in request.headers}
        key = prefix_key(body) if self._by_prefix else ""
        handle = self._replicas.options(multiplexed_model_id=key) if key else self._replicas
        problem = ""
        for attempt in range(self._attempts):
            answer = handle.answer.remote(request.method, path, body, headers)
            try:
                status, kind = await answer.__anext__()
            except (RayError, aiohttp.ClientError, asyncio.TimeoutError) as error:
                problem = type(error).__name__
                await asyncio.sleep(0.2 * (attempt + 1))
                continue
            return StreamingResponse(self._rest(answer, kind), status_code=status, media_type=kind)
        sentence = f"no replica could answer ({problem}); try again"
        return JSONResponse({"error": {"message": sentence, "type": "server_error", "code": 503}}, status_code=503)

    async def _rest(self, answer: Any, kind: str) -> AsyncIterator[bytes]:
        try:
            async for piece in answer:
                yield piece
        except (RayError, aiohttp.ClientError, asyncio.TimeoutError) as error:
            # The answer has begun: its client must not take a part for the whole.
            sentence = f"the replica ended before its answer did ({type(error).__name__}); try again"
            broken = json.dumps({"error": {"message": sentence, "type": "server_error", "code": 503}})
            yield (f"data: {broken}\n\n" if "event-stream" in kind else "\n" + broken).encode()
        finally:
            with contextlib.suppress(Exception):
                answer.cancel()


def deployment(
    model: str | os.PathLike[str],
    *,
    min_replicas: int = 1,
    max_replicas: int = 4,
    requests_per_replica: float = 8,
    arguments: Sequence[str] = (),
    cpus: float = 1,
    gpus: float = 0,
    by_prefix: bool = True,
    attempts: int = 3,
    health_seconds: float = 2,
    program: str | os.PathLike[str] = PROGRAM,
) -> serve.Application:
    """An OpenAI application for `ray.serve.run`: completions and chats, streamed or whole, as `tessera serve` answers.

    requests_per_replica: how many requests a replica should have at a time; more start replicas, up to
    max_replicas. arguments: of `tessera serve`, such as ("--weights", "int4"). cpus, gpus: what Ray reserves for a
    replica. by_prefix: prompts that begin alike go to the replica that has their beginning in its prefix cache, as
    long as that one is not overloaded. attempts: how often a request that has not begun to answer is tried.

    >>> ray.serve.run(tessera.ray.deployment("models/stories", max_replicas=2), route_prefix="/")
    """
    replica = serve.deployment(
        name="tessera_replica",
        autoscaling_config={
            "min_replicas": min_replicas,
            "initial_replicas": min_replicas,
            "max_replicas": max_replicas,
            "target_ongoing_requests": requests_per_replica,
        },
        max_ongoing_requests=max(2, int(4 * requests_per_replica)),
        health_check_period_s=health_seconds,
        health_check_timeout_s=max(5.0, 2 * health_seconds),
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
    )(Replica)
    gateway = serve.deployment(
        name="tessera_gateway", num_replicas=1, max_ongoing_requests=10000, ray_actor_options={"num_cpus": 0}
    )(Gateway)
    started = replica.bind(os.path.abspath(model), tuple(arguments), os.path.abspath(program))
    return gateway.bind(started, by_prefix, attempts)


def wait_until_ready(url: str, seconds: float = READY_SECONDS) -> None:
    """Waits until the endpoint answers /health."""
    import urllib.request

    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(url + "/health", timeout=5) as response:
            if response.status == 200:
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{url} is not ready after {seconds:.0f} s")
        time.sleep(0.2)
