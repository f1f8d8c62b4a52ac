"""An answer over HTTP has the tokens of the command line: endless streams, several answers, chats, and with speculation."""
import functools
import json

import pytest
from served import PROMPT, command_line, generated

GREEDY, SEEDED = {"temperature": 0}, {"temperature": 0.9, "top_p": 0.95, "seed": 7}
WAYS = pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
ENDLESS = {"attention_sinks": 4, "window": 60, "max_tokens": 160, "ignore_eos": True}


def flags(options: dict) -> list[str]:
    """The same as options of the program."""
    found = []
    for name, value in options.items():
        found += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return found


def ask(server, path: str, **asked) -> list[dict]:
    """The choices: text, tokens and how each ended. Pages that others have left in the prefix cache agree within rounding only."""
    chat, asked = path.startswith("/v1/chat"), {"cache_prompt": False} | asked
    status, _, body = server.request("POST", path, asked | ({"logprobs": True} if chat else {"logprobs": 0}))
    assert status == 200, body
    if not asked.get("stream"):
        choices = [[choice] for choice in json.loads(body)["choices"]]
    else:
        choices = [[] for _ in range(asked.get("n", 1))]
        for event in body.decode().removesuffix("\n\n").split("\n\n")[:-1]:
            for choice in json.loads(event.removeprefix("data: "))["choices"]:
                choices[choice["index"]].append(choice)
    return [answer_of(pieces, chat) for pieces in choices]


def answer_of(pieces: list[dict], chat: bool) -> dict:
    parts = [piece.get("message", piece.get("delta", {})).get("content", "") if chat else piece["text"] for piece in pieces]
    logprobs = [piece["logprobs"] for piece in pieces if piece["logprobs"]]
    tokens = [token["token"] for one in logprobs for token in one["content"]] if chat else [token for one in logprobs for token in one["tokens"]]
    return {"text": "".join(parts), "tokens": tokens, "reason": pieces[-1]["finish_reason"]}


@functools.cache
def token_text(server, token: int) -> str:
    status, _, body = server.request("POST", "/detokenize", {"tokens": [token]})
    assert status == 200, body
    return json.loads(body)["content"]


def expected(server, said: dict) -> dict:
    """The answer of the command line as the API should tell it: the texts of its token ids, each by itself."""
    return {"text": said["text"], "tokens": [token_text(server, token) for token in said["token_ids"]], "reason": {"max_tokens": "length", "eos": "stop"}[said["stop_reason"]]}


@WAYS
def test_a_stream_with_sinks_and_a_window(server, program, sampling):
    said = generated(program, *flags(ENDLESS | sampling), PROMPT)
    assert len(said["token_ids"]) == 160
    full = generated(program, *flags({"max_tokens": 160, "ignore_eos": True} | sampling), PROMPT)
    assert said["text"] != full["text"], "the window matters"
    for stream in (False, True):
        assert ask(server, "/v1/completions", prompt=PROMPT, stream=stream, **ENDLESS, **sampling) == [expected(server, said)]


def test_a_window_without_sinks(server, program):
    options = {"window": 40, "max_tokens": 100, "ignore_eos": True, "temperature": 0}
    assert ask(server, "/v1/completions", prompt=PROMPT, **options) == [expected(server, generated(program, *flags(options), PROMPT))]


def test_several_answers(server, program):
    options = {"max_tokens": 24, "temperature": 1, "top_p": 0.9, "seed": 3}
    said = generated(program, "-n", "3", *flags(options), PROMPT)["choices"]
    assert len({choice["text"] for choice in said}) == 3
    for stream in (False, True):
        assert ask(server, "/v1/completions", prompt=PROMPT, n=3, stream=stream, **options) == [expected(server, choice) for choice in said]


def test_a_prompt_of_ids_with_an_end(server, program):
    """Up to the end token, which is not shown."""
    said = generated(program, "--prompt-ids", "0,389,388,260,364", "--max-tokens", "400", "--greedy")
    assert said["stop_reason"] == "eos"
    (answer,) = ask(server, "/v1/completions", prompt=[0, 389, 388, 260, 364], max_tokens=400, temperature=0)
    wanted = expected(server, said)
    assert answer["text"] == wanted["text"] and answer["reason"] == "stop"
    assert answer["tokens"] == wanted["tokens"][: len(answer["tokens"])] and len(wanted["tokens"]) - len(answer["tokens"]) <= 1


# ---- chats ----


@pytest.fixture(scope="module")
def chat_server(start, chat_model):
    return start("same-chat", "--model", str(chat_model))


SYSTEM, TURNS = "Tell a story.", ["About a dog.", "And about a cat?"]


@WAYS
def test_a_chat_turn_by_turn(chat_server, chat_model, program, sampling):
    """Each turn gets the tokens of `tessera chat`, which adds one to the seed for each."""
    options = flags({"max_tokens": 24} | sampling)
    turns = command_line(program, "chat", "--device", "cpu", "--model", str(chat_model), "--system", SYSTEM, *options, text="\n".join(TURNS) + "\n")
    messages = [{"role": "system", "content": SYSTEM}]
    assert len(turns) == len(TURNS)
    for i, said in enumerate(turns, 1):
        draws = sampling | ({"seed": sampling["seed"] + i} if "seed" in sampling else {})
        messages.append({"role": "user", "content": said["user"]})
        for stream in (False, True):
            answer = ask(chat_server, "/v1/chat/completions", messages=messages, max_tokens=24, stream=stream, **draws)
            assert answer == [expected(chat_server, said)]
        messages.append({"role": "assistant", "content": said["text"]})


def test_a_chat_has_the_tokens_of_its_template(chat_server, chat_model, program, tmp_path):
    """What `tessera tokenize --chat` shows, continued by `tessera generate`."""
    messages = [{"role": "system", "content": SYSTEM}, *({"role": "user", "content": text} for text in TURNS)]
    (tmp_path / "messages.json").write_text(json.dumps(messages))
    ids = command_line(program, "tokenize", "--model", str(chat_model), "--chat", str(tmp_path / "messages.json"))[0]["ids"]
    options = {"max_tokens": 32, "temperature": 0}
    said = generated(program, "--model", str(chat_model), "--prompt-ids", ",".join(map(str, ids)), *flags(options))
    assert ask(chat_server, "/v1/chat/completions", messages=messages, **options) == [expected(chat_server, said)]
    status, _, body = chat_server.request("POST", "/v1/chat/completions", {"messages": messages, **options})
    assert status == 200 and json.loads(body)["usage"]["prompt_tokens"] == len(ids)


# ---- a server that guesses ahead ----


@pytest.fixture(scope="module")
def guessing(start):
    return start("speculate", "--speculate", "ngram")


# It repeats itself, so that guesses are right.
SONG = "The dog ran to the tree. The cat ran to the tree. The dog ran to the tree. The cat ran to"


@WAYS
@pytest.mark.parametrize("policy", [{}, ENDLESS], ids=["full", "endless"])
def test_guessing_ahead_changes_no_token(guessing, program, sampling, policy):
    options = {"max_tokens": 64, "ignore_eos": True} | policy | sampling
    said = expected(guessing, generated(program, *flags(options), SONG))
    before = guessing.metrics()["tessera_accepted_tokens_total"]
    for stream in (False, True):
        assert ask(guessing, "/v1/completions", prompt=SONG, stream=stream, **options) == [said]
    if sampling == GREEDY:
        # Guesses rest while they do not pay, as the engine has measured: one answer may have none.
        for _ in range(100):
            if guessing.metrics()["tessera_accepted_tokens_total"] > before:
                break
            assert ask(guessing, "/v1/completions", prompt=SONG, **options) == [said]
        assert guessing.metrics()["tessera_accepted_tokens_total"] > before, "some guesses were right"
