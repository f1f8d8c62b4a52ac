"""What /metrics tells of requests that were just answered."""
import json
import time

import pytest
from served import PROMPT

PAGE = 64  # tokens; whole pages of a prompt are found again


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
