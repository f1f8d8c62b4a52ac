"""Texts to token ids and back, over HTTP."""
import json
import pathlib

import pytest
from served import command_line

STORIES = pathlib.Path(__file__).resolve().parents[2] / "models/stories"

# A space in front, characters of two and of four bytes, and the spelling of a special token.
TEXT = " caf\u00e9 \U0001f600 the dog"
SPECIAL = "<|story|>"


def tokens(server, text: str, **options) -> list[int]:
    status, _, body = server.request("POST", "/tokenize", {"content": text, **options})
    assert status == 200, body
    answer = json.loads(body)
    assert answer.keys() == {"tokens", "count"} and answer["count"] == len(answer["tokens"])
    return answer["tokens"]


def text_of(server, ids: list[int]) -> str:
    status, _, body = server.request("POST", "/detokenize", {"tokens": ids})
    assert status == 200, body
    answer = json.loads(body)
    assert answer.keys() == {"content"}
    return answer["content"]


@pytest.mark.parametrize("text", [TEXT, SPECIAL + TEXT], ids=["plain", "special"])
@pytest.mark.parametrize("add_special", [None, False, True])
@pytest.mark.parametrize("parse_special", [None, False, True])
def test_the_same_ids_as_the_command_line(server, program, text, add_special, parse_special):
    """Without the fields: nothing is added, and special tokens are recognised."""
    options = {name: value for name, value in (("add_special", add_special), ("parse_special", parse_special)) if value is not None}
    flags = (["--add-special"] if add_special else []) + (["--no-parse-special"] if parse_special is False else [])
    assert tokens(server, text, **options) == command_line(program, "tokenize", "--model", str(STORIES), *flags, "--text", text)[0]["ids"]


def test_there_and_back(server):
    for text in (TEXT, SPECIAL + TEXT, "a", "\n\t x", ""):
        assert text_of(server, tokens(server, text)) == text
        assert text_of(server, tokens(server, text, parse_special=False)) == text
    assert text_of(server, []) == ""


def test_special_tokens_are_added_and_recognised_only_if_asked_for(server):
    plain = tokens(server, "the dog")
    assert tokens(server, "the dog", add_special=True)[1:] == plain
    assert len(tokens(server, SPECIAL)) == 1
    assert len(tokens(server, SPECIAL, parse_special=False)) > 1


def test_the_ids_are_those_of_a_prompt(server):
    """A prompt as ids gives the answer of the prompt as text, and counts as many tokens."""
    answers = []
    for prompt in (TEXT, tokens(server, TEXT, add_special=True, parse_special=False)):
        status, _, body = server.request("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 8, "temperature": 0})
        assert status == 200, body
        answer = json.loads(body)
        answers.append((answer["choices"][0]["text"], answer["usage"]["prompt_tokens"]))
    assert answers[0] == answers[1]
    assert answers[1][1] == len(tokens(server, TEXT, add_special=True))


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [("/detokenize", {"tokens": [0, 999999]}, "999999"), ("/detokenize", {"tokens": [-1]}, "tokens"), ("/detokenize", {"tokens": [2**31]}, "tokens"),
     ("/detokenize", {"tokens": "the dog"}, "tokens"), ("/detokenize", {}, "tokens"), ("/tokenize", {}, "content"), ("/tokenize", {"content": 5}, "content"),
     ("/tokenize", {"content": "a", "add_special": 1}, "add_special"), ("/tokenize", {"content": "a", "bos": True}, "bos")],
)
def test_what_is_wrong_is_refused_by_name(server, path, body, said):
    status, _, answer = server.request("POST", path, body)
    assert status == 400
    error = json.loads(answer)["error"]
    assert said in error["message"] and error["param"] in body.keys() | {"tokens", "content"}, error
