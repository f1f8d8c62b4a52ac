"""An answer does not depend on who else is being answered."""
import concurrent.futures
import contextlib
import json
import time

import pytest
from served import PROMPT, post

OTHERS = 32
ASKED = {
    "greedy": {"prompt": PROMPT, "max_tokens": 48, "temperature": 0, "logprobs": 0},
    "seeded": {"prompt": PROMPT, "max_tokens": 48, "temperature": 0.9, "top_p": 0.95, "seed": 7, "logprobs": 0},
}


def ask(server, name: str, stream: bool = False) -> tuple[str, list[str], str]:
    """The text, its tokens one by one, and why it ended."""
    status, _, body = server.request("POST", "/v1/completions", ASKED[name] | {"stream": stream}, timeout=300)
    assert status == 200, body
    if not stream:
        choice = json.loads(body)["choices"][0]
        return choice["text"], choice["logprobs"]["tokens"], choice["finish_reason"]
    *events, end = [event.removeprefix("data: ") for event in body.decode().removesuffix("\n\n").split("\n\n")]
    assert end == "[DONE]"
    choices = [json.loads(event)["choices"][0] for event in events]
    tokens = [token for choice in choices if choice["logprobs"] for token in choice["logprobs"]["tokens"]]
    return "".join(choice["text"] for choice in choices), tokens, choices[-1]["finish_reason"]


@contextlib.contextmanager
def company(server):
    """So many endless streams, of prompts and draws that all differ, until the end of the block."""
    with contextlib.ExitStack() as held:
        for i in range(OTHERS):
            words = " ".join(["The dog ran.", "Lily saw a cat.", "It rained."][i % 3 :] * (1 + i % 5))
            asked = {"prompt": words, "stream": True, "max_tokens": 1000000, "ignore_eos": True, "attention_sinks": 4, "window": 40 + i,
                     "temperature": i % 4 / 2, "seed": i}
            connection = held.enter_context(server.connect())
            connection.sendall(post("/v1/completions", asked))
        deadline = time.monotonic() + 120
        while server.metrics()["tessera_sequences_running"] < OTHERS:
            assert time.monotonic() < deadline, "the others do not run all at once"
            time.sleep(0.05)
        yield


WAYS = [(name, stream) for name in ASKED for stream in (False, True)]


def test_the_same_tokens_alone_and_among_32_others_streamed_and_not(start):
    server = start("company", "--max-sequences", str(OTHERS + len(WAYS)))
    alone = {name: ask(server, name) for name in ASKED}
    assert all(len(tokens) == 48 for _, tokens, _ in alone.values())
    assert alone["greedy"] != alone["seeded"]
    with company(server), concurrent.futures.ThreadPoolExecutor(len(WAYS)) as pool:
        among = dict(zip(WAYS, pool.map(lambda way: ask(server, *way), WAYS)))
        assert server.metrics()["tessera_sequences_running"] >= OTHERS, "they were there all the time"
    assert among == {(name, stream): alone[name] for name, stream in WAYS}
    server.wait_until_idle()
    assert {name: ask(server, name) for name in ASKED} == alone


@pytest.mark.parametrize("name", ASKED)
def test_a_burst_of_33_requests_gives_each_its_own_tokens(server, name):
    """Prompts that are read in the same steps as others decode, and more requests than run at once."""
    alone = ask(server, name)
    names = [name] + [other for other in ASKED for _ in range(OTHERS // len(ASKED))]
    with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
        answers = list(pool.map(lambda one: ask(server, one[1], stream=one[0] % 4 >= 2), enumerate(names)))
    assert answers[0] == alone
    assert all(answers[i] == alone for i, other in enumerate(names) if other == name)
