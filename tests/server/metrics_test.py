"""What /metrics tells of requests that were just answered."""
import json
import re
import time

import pytest
from served import PROMPT, post, reset

PAGE = 64  # tokens; whole pages of a prompt are found again


NAME, LABEL = r"[a-zA-Z_:][a-zA-Z0-9_:]*", r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\\\n]|\\\\[\\\\"n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")


def families(text: str) -> dict[str, tuple[str, dict[tuple[str, str], float]]]:
    """Of each name its type and its samples, as Prometheus reads them, or an AssertionError."""
    assert text.endswith("\n")
    found: dict[str, tuple[str, dict]] = {}
    lines = iter(text.splitlines())
    name = kind = ""
    for line in lines:
        if line.startswith("# HELP "):
            _, _, name, help_text = line.split(" ", 3)
            assert re.fullmatch(NAME, name) and name not in found and help_text
            _, _, again, kind = next(lines).split(" ")
            assert again == name and kind in ("counter", "gauge", "histogram")
            found[name] = (kind, {})
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        suffix = sample[1].removeprefix(name)
        assert sample[1].startswith(name) and suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",)), line
        key = (suffix, sample[2] or "")
        assert key not in found[name][1], line
        found[name][1][key] = float(sample[3])
    return found


def check_histogram(name: str, samples: dict[tuple[str, str], float]) -> None:
    bounds = [(float(re.fullmatch('le="(.*)"', label)[1]), value) for (suffix, label), value in samples.items() if suffix == "_bucket"]
    assert bounds == sorted(bounds) and len({bound for bound, _ in bounds}) == len(bounds) > 5, name
    counts = [count for _, count in bounds]
    assert counts == sorted(counts), f"{name}: a bucket counts those of smaller bounds too"
    assert bounds[-1] == (float("inf"), samples["_count", ""]), name
    assert samples["_sum", ""] >= 0 and (samples["_sum", ""] > 0) == (counts[-1] > 0), name


def test_all_of_the_text_is_what_prometheus_reads(own):
    complete(own, prompt=PROMPT, max_tokens=4)
    own.request("GET", "/no/such/path")
    status, headers, body = own.request("GET", "/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found = families(body.decode())
    assert len(found) > 20
    for name, (kind, samples) in found.items():
        assert samples, name
        assert name.startswith(("tessera_", "process_")) and name.endswith("_total") == (kind == "counter"), name
        if kind == "histogram":
            check_histogram(name, samples)
        assert all(value >= 0 for value in samples.values()), name
    requests = found["tessera_requests_total"][1]
    assert requests["", 'route="/v1/completions",status="200"'] >= 1 and requests["", 'route="other",status="404"'] >= 1
    assert sum(requests.values()) == found["tessera_request_seconds"][1]["_count", ""]


def test_pages_are_counted_while_an_answer_is_written(own):
    before = own.wait_until_idle()
    with own.connect() as connection:
        connection.sendall(post("/v1/completions", {"prompt": PROMPT, "stream": True, "max_tokens": 1000000, "ignore_eos": True, "attention_sinks": 4, "window": 200}))
        deadline = time.monotonic() + 60
        while (now := own.metrics())["tessera_kv_pages_used"] < 4:  # sinks on a page of their own, and 200 tokens on three more
            assert time.monotonic() < deadline, now
        assert now["tessera_sequences_running"] == 1 and now["tessera_sequences_waiting"] == 0 and now["tessera_connections"] == 2
        assert now["tessera_kv_pages_used"] <= now["tessera_kv_pages_peak"] <= now["tessera_kv_pages"] == before["tessera_kv_pages"]
        reset(connection)
    assert own.wait_until_idle()["tessera_kv_pages_peak"] >= 4


class Figures:
    """What the metrics of a server have grown by."""

    def __init__(self, server):
        server.wait_until_idle()  # the last step of earlier answers is counted too
        self.server, self.before = server, self.now(server)

    @staticmethod
    def now(server) -> dict[str, float]:
        """By their names with labels."""
        lines = server.get("/metrics").decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))}

    def until(self, **expected: float) -> dict[str, float]:
        """The growth of all, once these have grown so far: an answer is counted just behind its last byte."""
        deadline = time.monotonic() + 30
        while True:
            grown = {name: value - self.before.get(name, 0) for name, value in self.now(self.server).items()}
            seen = {name: grown[f"tessera_{name}"] for name in expected}
            if seen == expected:
                return grown
            assert time.monotonic() < deadline, (seen, expected)
            time.sleep(0.02)


@pytest.fixture(scope="module")
def own(start):
    """A server that nobody else asks."""
    return start("metrics")


def complete(server, **asked) -> dict:
    status, _, body = server.request("POST", "/v1/completions", {"temperature": 0, "ignore_eos": True} | asked)
    assert status == 200, body
    return json.loads(body)["usage"]


def test_an_answer_is_counted(own):
    figures = Figures(own)
    usage = complete(own, prompt=PROMPT, max_tokens=12)
    grown = figures.until(prompt_tokens_total=usage["prompt_tokens"], generated_tokens_total=12, answers_finished_total=1,
                          first_token_seconds_count=1, token_seconds_count=1, answers_failed_total=0, answers_cancelled_total=0)
    assert usage["prompt_tokens"] == 5
    assert grown['tessera_requests_total{route="/v1/completions",status="200"}'] == 1
    first, each, whole = (grown[f"tessera_{name}_seconds_sum"] for name in ("first_token", "token", "request"))
    assert 0 < first and 0 < each
    assert first + 11 * each <= whole + 1e-6, "the wait and the pace are parts of the request's time"
    for name in ("first_token", "token"):
        assert grown[f'tessera_{name}_seconds_bucket{{le="+Inf"}}'] == 1
    assert grown["tessera_steps_total"] >= 12 and grown["tessera_step_seconds_total"] > 0


def test_what_counts_towards_which_histogram(own):
    """Every choice has a first token; only answers of two tokens or more have a pace."""
    figures = Figures(own)
    complete(own, prompt=PROMPT, max_tokens=1)
    figures.until(first_token_seconds_count=1, token_seconds_count=0, generated_tokens_total=1)
    complete(own, prompt=PROMPT, max_tokens=4, n=3)
    figures.until(first_token_seconds_count=4, token_seconds_count=3, generated_tokens_total=13, answers_finished_total=4)


def test_a_prompt_that_was_seen_before_is_found_again(own):
    prompt = "The little dog ran to the big tree. " * 12
    first = complete(own, prompt=prompt, max_tokens=2)
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    figures = Figures(own)
    again = complete(own, prompt=prompt, max_tokens=2)
    cached = again["prompt_tokens_details"]["cached_tokens"]
    assert cached >= PAGE and cached % PAGE == 0 and cached < again["prompt_tokens"]
    figures.until(prompt_tokens_total=again["prompt_tokens"], cached_tokens_total=cached)
    figures = Figures(own)
    usage = complete(own, prompt=prompt, max_tokens=2, cache_prompt=False)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    figures.until(prompt_tokens_total=usage["prompt_tokens"], cached_tokens_total=0)


def test_refusals_are_counted_by_their_status_and_are_no_answers(own):
    figures = Figures(own)
    assert own.request("POST", "/v1/completions", {"prompt": PROMPT, "n": 0})[0] == 400
    assert own.request("GET", "/no/such/path")[0] == 404
    grown = figures.until(first_token_seconds_count=0, generated_tokens_total=0)
    deadline = time.monotonic() + 30
    while grown.get('tessera_requests_total{route="/v1/completions",status="400"}') != 1:
        assert time.monotonic() < deadline
        grown = figures.until(first_token_seconds_count=0)
    assert not any("/no/such/path" in name for name in grown), "clients cannot invent labels"
