"""The options of the model, its weights and its cache: a server gives the answers of `tessera generate` with the same options."""
import json
import pathlib

import pytest
from served import PROMPT, command_line, generated

STORIES = pathlib.Path(__file__).resolve().parents[2] / "models/stories"
GREEDY = {"prompt": PROMPT, "temperature": 0, "ignore_eos": True}


def text_of(server, **asked) -> str:
    status, _, body = server.request("POST", "/v1/completions", GREEDY | asked)
    assert status == 200, body
    return json.loads(body)["choices"][0]["text"]


def model_of(server) -> dict:
    return json.loads(server.get("/v1/models"))["data"][0]["tessera"]


@pytest.mark.parametrize("options", [["--weights", "int4"], ["--weights", "nf4", "--activations", "exact"], ["--kv-dtype", "int8"]], ids=lambda options: options[-1])
def test_formats_of_weights_and_of_the_cache(start, program, tiny_folder, options):
    begin = ["--model", str(tiny_folder)]
    server = start(f"format-{options[-1]}", *begin, *options)
    asked = ["--max-tokens", "48", "--greedy", "--ignore-eos", PROMPT]
    said, plain = generated(program, *begin, *options, *asked), generated(program, *begin, *asked)
    assert text_of(server, max_tokens=48) == said["text"]
    # And the option says something.
    assert said["weights" if options[0] == "--weights" else "cache_dtype"] == options[1] != plain["cache_dtype"]
    assert f"({options[1]})" in server.log.read_text()


def test_the_context_bounds_prompts_and_answers(start):
    server = start("context", "--context", "100")
    assert model_of(server)["context"] == 100
    status, _, body = server.request("POST", "/v1/completions", GREEDY | {"max_tokens": 1000})
    answer = json.loads(body)
    assert status == 200 and answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] in (100, 101), "the last token need not be stored"
    status, _, body = server.request("POST", "/v1/completions", GREEDY | {"prompt": [5] * 101, "max_tokens": 1})
    assert status == 400 and "100" in json.loads(body)["error"]["message"]


def test_a_chat_template_by_its_name(start, program, tmp_path):
    server = start("template", "--chat-template", "chatml")
    assert model_of(server)["chat"] is True
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    (tmp_path / "messages.json").write_text(json.dumps(messages))
    ids = command_line(program, "tokenize", "--model", str(STORIES), "--chat-template", "chatml", "--chat", str(tmp_path / "messages.json"))[0]["ids"]
    said = generated(program, "--prompt-ids", ",".join(map(str, ids)), "--max-tokens", "16", "--greedy", "--ignore-eos")
    status, _, body = server.request("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 16, "temperature": 0, "ignore_eos": True})
    answer = json.loads(body)
    assert status == 200 and answer["usage"]["prompt_tokens"] == len(ids)
    assert answer["choices"][0]["message"]["content"] == said["text"]


@pytest.fixture(scope="module")
def endless(start):
    return start("server-wide", "--attention-sinks", "4", "--window", "60")


def test_a_window_of_the_server_is_that_of_requests_that_do_not_say(endless, program):
    assert (model_of(endless)["attention_sinks"], model_of(endless)["window"]) == (4, 60)
    asked = ["--max-tokens", "160", "--greedy", "--ignore-eos", PROMPT]
    own, other, full = (generated(program, *policy, *asked)["text"] for policy in (["--attention-sinks", "4", "--window", "60"], ["--window", "40"], []))
    assert len({own, other, full}) == 3
    assert text_of(endless, max_tokens=160) == own
    assert text_of(endless, max_tokens=160, window=40) == other, "a request's own field is its whole policy"
    assert text_of(endless, max_tokens=160, attention_sinks=0) == full


def test_a_stream_may_be_longer_than_the_context_of_a_server_with_a_window(endless):
    status, _, body = endless.request("POST", "/v1/completions", GREEDY | {"max_tokens": 700})
    assert status == 200 and json.loads(body)["usage"]["completion_tokens"] == 700
