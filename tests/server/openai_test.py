"""The official OpenAI client against a live server."""
import json

import openai
import pytest
from served import PROMPT, generated


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def model(client):
    return client.models.list().data[0].id


def text_of(program: str, *arguments: str) -> str:
    """What `tessera generate` writes."""
    return generated(program, *arguments, PROMPT)["text"]


def test_models(client, model):
    assert client.models.retrieve(model).id == model
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")


GREEDY, SEEDED = {"temperature": 0}, {"temperature": 1.2, "seed": 7}
OPTIONS = [
    GREEDY,
    {"temperature": 0.8, "top_p": 0.95, "seed": 7},
    {**GREEDY, "repetition_penalty": 1.3},
    {**GREEDY, "presence_penalty": 4},
    {**GREEDY, "frequency_penalty": 0.8},
    {**GREEDY, "logit_bias": {"14": -100, "300": 3}},
    {**SEEDED, "top_k": 5},
    {**SEEDED, "min_p": 0.2},
]


def flags_of(options: dict) -> list[str]:
    """The options of `tessera generate` that say the same."""
    flags = []
    for name, value in options.items():
        values = [f"{token}={bias}" for token, bias in value.items()] if name == "logit_bias" else [str(value)]
        flags += [f for one in values for f in (f"--{name.replace('_', '-')}", one)]
    return flags


@pytest.mark.parametrize("options", OPTIONS, ids=["greedy", "seeded", *(list(options)[-1] for options in OPTIONS[2:])])
def test_the_same_text_as_the_command_line_streamed_and_not(client, model, program, options):
    expected = text_of(program, "--max-tokens", "32", *flags_of(options))
    if options in OPTIONS[2:]:  # and the option says something: without it the text is another
        assert expected != text_of(program, "--max-tokens", "32", *flags_of(SEEDED if "seed" in options else GREEDY))
    whole = client.completions.create(model=model, prompt=PROMPT, max_tokens=32, extra_body=options)
    chunks = list(client.completions.create(model=model, prompt=PROMPT, max_tokens=32, stream=True, extra_body=options))
    assert whole.choices[0].text == expected
    assert "".join(c.choices[0].text for c in chunks) == expected
    assert whole.choices[0].finish_reason == chunks[-1].choices[0].finish_reason == "length"
    assert len(chunks) > 16, "the answer comes in pieces"


def test_usage_streamed_and_not(client, model):
    whole = client.completions.create(model=model, prompt=PROMPT, max_tokens=8, temperature=0)
    chunks = list(client.completions.create(model=model, prompt=PROMPT, max_tokens=8, temperature=0, stream=True, stream_options={"include_usage": True}))
    assert whole.usage.completion_tokens == 8
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + 8
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 8
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens


def test_several_choices(client, model):
    asked = {"model": model, "prompt": PROMPT, "max_tokens": 12, "temperature": 1, "seed": 3}
    whole = client.completions.create(n=3, **asked)
    assert [c.index for c in whole.choices] == [0, 1, 2]
    assert len({c.text for c in whole.choices}) > 1
    texts = ["", "", ""]
    for chunk in client.completions.create(n=3, stream=True, **asked):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [c.text for c in whole.choices]


def test_log_probabilities(client, model):
    answer = client.completions.create(model=model, prompt=PROMPT, max_tokens=6, temperature=0, logprobs=3).choices[0]
    found = answer.logprobs
    assert "".join(found.tokens) == answer.text
    assert len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs) == 6
    for token, own, top in zip(found.tokens, found.token_logprobs, found.top_logprobs):
        assert own <= 0
        assert top[token] == pytest.approx(own, abs=1e-5)
        assert own == pytest.approx(max(top.values()), abs=1e-5), "greedy takes the likeliest"


def streamed_logprobs(client, **asked) -> list[tuple[list[str], list[int]]]:
    """Of each choice: its tokens and where they stand."""
    found = [([], []) for _ in range(asked.get("n", 1))]
    for chunk in client.completions.create(stream=True, **asked):
        for choice in chunk.choices:
            if choice.logprobs:
                found[choice.index][0].extend(choice.logprobs.tokens)
                found[choice.index][1].extend(choice.logprobs.text_offset)
    return found


def test_where_tokens_stand_in_the_text_of_each_choice(client, model):
    asked = {"model": model, "prompt": PROMPT, "max_tokens": 12, "temperature": 1, "seed": 3, "n": 2, "logprobs": 0}
    choices = client.completions.create(**asked).choices
    for choice in choices:
        tokens, offsets = choice.logprobs.tokens, choice.logprobs.text_offset
        assert offsets == [len("".join(tokens[:i])) for i in range(len(tokens))]
        assert all(choice.text.startswith(token, offset) for token, offset in zip(tokens, offsets))
    assert streamed_logprobs(client, **asked) == [(choice.logprobs.tokens, choice.logprobs.text_offset) for choice in choices]


def test_where_tokens_stand_counts_characters_and_not_bytes(client, model, server):
    """Each of these tokens is half of a character; the first completes the one that the prompt began."""
    status, _, body = server.request("POST", "/tokenize", {"content": "\u00e9"})
    first, second = json.loads(body)["tokens"]
    options = {"logit_bias": {str(second): 100, str(first): 70}, "frequency_penalty": 60, "temperature": 0}
    asked = {"model": model, "prompt": [0, 389, first], "max_tokens": 3, "logprobs": 0, "extra_body": options}
    choice = client.completions.create(**asked).choices[0]
    assert choice.text == "\u00e9\u00e9"
    assert choice.logprobs.text_offset == [0, 1, 1]
    assert streamed_logprobs(client, **asked) == [(choice.logprobs.tokens, [0, 1, 1])]


def test_stop_ends_before_the_words(client, model):
    full = client.completions.create(model=model, prompt=PROMPT, max_tokens=32, temperature=0).choices[0].text
    word = full.split()[5]
    stopped = client.completions.create(model=model, prompt=PROMPT, max_tokens=32, temperature=0, stop=[word]).choices[0]
    assert stopped.finish_reason == "stop"
    assert stopped.text == full[: full.index(word)]
    pieces = client.completions.create(model=model, prompt=PROMPT, max_tokens=32, temperature=0, stop=word, stream=True)
    assert "".join(c.choices[0].text for c in pieces) == stopped.text


def test_echo_and_several_prompts(client, model):
    answer = client.completions.create(model=model, prompt=[PROMPT, "The dog"], max_tokens=4, temperature=0, echo=True)
    assert answer.choices[0].text.startswith(PROMPT)
    assert answer.choices[1].text.startswith("The dog")


def test_endless_streams_have_fields_of_their_own(client, model):
    options = {"attention_sinks": 4, "window": 60, "ignore_eos": True, "cache_prompt": False}
    answer = client.completions.create(model=model, prompt=PROMPT, max_tokens=160, temperature=0, extra_body=options)
    assert answer.usage.completion_tokens == 160
    assert answer.choices[0].finish_reason == "length"


def test_a_stream_that_is_closed_frees_its_place(client, model, server):
    stream = client.completions.create(model=model, prompt=PROMPT, max_tokens=100000, stream=True, extra_body={"attention_sinks": 4, "window": 60, "ignore_eos": True})
    for _ in zip(range(5), stream):
        pass
    stream.close()
    server.wait_until_idle(connections=False)


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", -1), ("max_tokens", -5), ("n", 0), ("n", 10**9), ("top_p", 2), ("logprobs", 1000), ("stop", [""]), ("stop", 5), ("prompt", {}),
     ("logit_bias", {"x": 1}), ("window", -1), ("attention_sinks", 1.5), ("tools", []), ("response_format", {"type": "json_object"}), ("nonsense", 1),
     pytest.param("stop", ["x"] * 17, id="17 stops"), pytest.param("stop", "x" * 257, id="a long stop"), pytest.param("stop", ["a", "x" * 257], id="one of two too long"),
     pytest.param("logit_bias", {str(i): 1 for i in range(1025)}, id="1025 biases")],
)
def test_bad_fields_are_refused_by_name(client, model, field, value):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt=PROMPT, max_tokens=2, extra_body={field: value})
    error = caught.value.body
    assert field in error["message"], error
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("field", "value"),
    [pytest.param("stop", ["\u00e9" * 256] * 16, id="stops"), pytest.param("logit_bias", {str(i): -1 for i in range(1024)}, id="biases")],
)
def test_as_much_as_the_caps_allow_is_accepted(client, model, field, value):
    client.completions.create(model=model, prompt=PROMPT, max_tokens=2, extra_body={field: value})


def test_another_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="gpt-4", prompt=PROMPT)


def test_a_prompt_beyond_the_context_is_refused(client, model):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt="word " * 3000, max_tokens=2)
    assert "token" in caught.value.body["message"]


def test_a_chat_without_a_template_is_refused(client, model):
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Hi"}])
    assert "/v1/completions" in caught.value.body["message"] and caught.value.body["param"] == "messages"


def test_fields_that_contradict_each_other_are_refused_as_such(client, model):
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        client.completions.create(model=model, prompt=PROMPT, max_tokens=2, stream_options={"include_usage": True})
    assert caught.value.body["param"] == "stream_options" and caught.value.body["type"] == "invalid_request_error"


def test_log_probabilities_of_an_echoed_prompt_are_not_supported(client, model):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt=PROMPT, max_tokens=2, echo=True, logprobs=2)
    assert caught.value.body["param"] == "echo" and "not supported" in caught.value.body["message"]


# ---- chat ----


@pytest.fixture(scope="module")
def chat_server(start, chat_model):
    return start("chat", "--model", str(chat_model), "--api-key", "a-secret-of-tests")


@pytest.fixture(scope="module")
def chat(chat_server):
    with openai.OpenAI(base_url=f"{chat_server.url}/v1", api_key="a-secret-of-tests", max_retries=0, timeout=60) as client:
        yield client


MESSAGES = [{"role": "system", "content": "Tell a story."}, {"role": "user", "content": "About a dog."}]


def test_chat_streamed_and_not(chat):
    model = chat.models.list().data[0].id
    asked = {"model": model, "messages": MESSAGES, "max_completion_tokens": 16, "temperature": 0}
    whole = chat.chat.completions.create(**asked)
    assert whole.choices[0].message.role == "assistant"
    assert whole.choices[0].message.content
    chunks = list(chat.chat.completions.create(stream=True, **asked))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole.choices[0].message.content
    as_text = chat.completions.create(model=model, prompt="system: Tell a story.\nuser: About a dog.\nassistant:", max_tokens=16, temperature=0)
    assert as_text.choices[0].text == whole.choices[0].message.content


def test_several_choices_of_a_chat(chat):
    """Choice i draws with the seed + i."""
    model = chat.models.list().data[0].id
    asked = {"model": model, "messages": MESSAGES, "max_tokens": 16, "temperature": 1}
    whole = chat.chat.completions.create(n=3, seed=5, **asked)
    texts = [choice.message.content for choice in whole.choices]
    assert [choice.index for choice in whole.choices] == [0, 1, 2] and len(set(texts)) == 3
    assert texts == [chat.chat.completions.create(seed=5 + i, **asked).choices[0].message.content for i in range(3)]
    streamed, roles = ["", "", ""], []
    *chunks, last = chat.chat.completions.create(n=3, seed=5, stream=True, stream_options={"include_usage": True}, **asked)
    for chunk in chunks:
        assert chunk.usage is None
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
            roles += [choice.index] if choice.delta.role else []
    assert streamed == texts and sorted(roles) == [0, 1, 2], "each choice says once who speaks"
    assert last.choices == [] and last.usage == whole.usage
    assert whole.usage.completion_tokens == 48 and whole.usage.prompt_tokens > 0


def test_stop_ends_a_chat_before_the_words(chat):
    model = chat.models.list().data[0].id
    asked = {"model": model, "messages": MESSAGES, "max_tokens": 32, "temperature": 0}
    full = chat.chat.completions.create(**asked).choices[0].message.content
    word = full.split()[4]
    stopped = chat.chat.completions.create(stop=[word, "never there"], **asked).choices[0]
    assert stopped.finish_reason == "stop" and stopped.message.content == full[: full.index(word)]
    chunks = list(chat.chat.completions.create(stop=word, stream=True, **asked))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == stopped.message.content
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_variables_of_the_template(chat):
    model = chat.models.list().data[0].id
    asked = {"model": model, "messages": MESSAGES, "max_tokens": 12, "temperature": 0}
    plain = chat.chat.completions.create(**asked)
    styled = chat.chat.completions.create(extra_body={"chat_template_kwargs": {"style": "very sad"}}, **asked)
    as_text = "style: very sad\nsystem: Tell a story.\nuser: About a dog.\nassistant:"
    rendered = chat.completions.create(model=model, prompt=as_text, max_tokens=12, temperature=0)
    assert styled.choices[0].message.content == rendered.choices[0].text
    assert styled.usage.prompt_tokens == rendered.usage.prompt_tokens > plain.usage.prompt_tokens
    for wrong in ("style", ["style"], 5):
        with pytest.raises(openai.BadRequestError) as caught:
            chat.chat.completions.create(extra_body={"chat_template_kwargs": wrong}, **asked)
        assert caught.value.body["param"] == "chat_template_kwargs"


def test_chat_log_probabilities(chat):
    model = chat.models.list().data[0].id
    answer = chat.chat.completions.create(model=model, messages=MESSAGES, max_tokens=5, temperature=0, logprobs=True, top_logprobs=2).choices[0]
    assert "".join(t.token for t in answer.logprobs.content) == answer.message.content
    for token in answer.logprobs.content:
        assert len(token.top_logprobs) == 2
        assert token.logprob == pytest.approx(token.top_logprobs[0].logprob, abs=1e-5)


def test_a_wrong_key_is_refused(chat_server):
    client = openai.OpenAI(base_url=f"{chat_server.url}/v1", api_key="another", max_retries=0)
    with client, pytest.raises(openai.AuthenticationError) as caught:
        client.models.list()
    assert "another" not in str(caught.value.body)
    assert "a-secret-of-tests" not in chat_server.log.read_text()


def test_images_are_refused_by_name(chat):
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]
    with pytest.raises(openai.BadRequestError) as caught:
        chat.chat.completions.create(model=chat.models.list().data[0].id, messages=[*MESSAGES, {"role": "user", "content": content}])
    assert caught.value.body["message"].startswith('messages[2].content[1].type is "image_url"; ')
    assert caught.value.body["param"] == "messages"


@pytest.mark.parametrize(
    ("field", "value"),
    [("tools", [{"type": "function", "function": {"name": "f"}}]), ("response_format", {"type": "json_object"}), ("messages", []),
     ("messages", [{"role": "robot", "content": "x"}]), ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])],
)
def test_what_a_chat_does_not_take_is_refused(chat, field, value):
    model = chat.models.list().data[0].id
    with pytest.raises(openai.BadRequestError) as caught:
        chat.chat.completions.create(model=model, messages=MESSAGES, max_tokens=2, extra_body={field: value})
    assert field in caught.value.body["message"], caught.value.body
