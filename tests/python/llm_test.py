"""LLM: the same tokens as the command line, many prompts, streams, chat, Ctrl-C."""

import asyncio
import gc
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
import transformers

import tessera

PROMPT = "Once upon a time"


def command_line(*arguments: str) -> dict:
    command = [sys.executable, "-m", "tessera", *arguments, "--device", "cpu", "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def wait_until(condition, seconds=30.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@pytest.mark.parametrize("seed", [None, 0, 11, 12345], ids=lambda seed: "greedy" if seed is None else f"seed {seed}")
def test_the_tokens_are_those_of_the_command_line(llm, seed):
    """Both sides choose activations and cache by their defaults. With exact ones, seed 0 would part after 73 tokens."""
    drawn = {"temperature": 0} if seed is None else {"seed": seed}
    flags = ["--greedy"] if seed is None else ["--seed", str(seed)]
    (ours,) = llm.generate(PROMPT, tessera.SamplingParams(max_tokens=200, ignore_eos=True, **drawn))
    theirs = command_line("generate", PROMPT, "--max-tokens", "200", "--ignore-eos", *flags)
    assert len(ours.token_ids) == 200
    assert ours.token_ids == theirs["token_ids"] and ours.text == theirs["text"]
    assert ours.prompt_token_ids == theirs["prompt_ids"]
    assert ours.finish_reason == theirs["stop_reason"] == "max_tokens"


def test_activations_are_8_bits_unless_exact_ones_are_asked_for(llm):
    assert llm.loaded.ctx.activations == "int8"
    exact = tessera.LLM(device="cpu", activations="exact", max_sequences=1, context=64)
    (ours,) = exact.generate(PROMPT, tessera.SamplingParams(max_tokens=24, seed=11))
    theirs = command_line("generate", PROMPT, "--max-tokens", "24", "--seed", "11", "--activations", "exact")
    assert exact.loaded.ctx.activations == "exact" and ours.token_ids == theirs["token_ids"]


def test_prompts_together_give_what_each_gives_alone(llm):
    prompts = ["The cat", "A dog and", llm.tokenizer.encode("Lily saw")]
    params = [tessera.SamplingParams(max_tokens=12, seed=i) for i in range(3)]
    together = llm.generate(prompts, params)
    for prompt, one, result in zip(prompts, params, together, strict=True):
        assert llm.generate([prompt], one)[0].token_ids == result.token_ids
    with pytest.raises(tessera.Error, match="3 prompts and 2 SamplingParams"):
        llm.generate(prompts, params[:2])


def test_stops_choices_bias_and_logprobs(llm):
    (result,) = llm.generate(PROMPT, tessera.SamplingParams(temperature=0, max_tokens=64, stop=["."]))
    assert result.finish_reason == "stop_string" and "." not in result.text
    (result,) = llm.generate(PROMPT, tessera.SamplingParams(max_tokens=6, n=3, seed=5))
    assert [o.index for o in result.outputs] == [0, 1, 2]
    (sixth,) = llm.generate(PROMPT, tessera.SamplingParams(max_tokens=6, seed=6))
    assert result.outputs[1].token_ids == sixth.token_ids
    (plain,) = llm.generate(PROMPT, tessera.SamplingParams(temperature=0, max_tokens=4, logprobs=2))
    for token, probable in zip(plain.token_ids, plain.outputs[0].logprobs, strict=True):
        assert token in probable and max(probable.values()) == probable[token] <= 0
    forbidden = {plain.token_ids[0]: float("-inf")}
    (other,) = llm.generate(PROMPT, tessera.SamplingParams(temperature=0, max_tokens=4, logit_bias=forbidden))
    assert other.token_ids[0] != plain.token_ids[0]
    assert plain.usage.generated_tokens == 4 and llm.stats().generated_tokens > 4


def test_penalties_and_tokens_that_stop(llm):
    def greedy(**options):
        return llm.generate(PROMPT, tessera.SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, **options))[0]

    plain = greedy().token_ids
    assert len(set(plain)) < 40  # words come again
    for penalty in ("presence_penalty", "frequency_penalty"):
        assert len(set(greedy(**{penalty: 1000.0}).token_ids)) == 40
    assert len(set(greedy(repetition_penalty=2.0).token_ids)) > len(set(plain))
    stopped = greedy(stop_token_ids=[plain[9]])
    assert stopped.finish_reason == "eos" and stopped.token_ids == plain[: plain.index(plain[9]) + 1]


def test_a_stream_adds_up_and_can_be_left(llm):
    params = tessera.SamplingParams(max_tokens=16, seed=2)
    (whole,) = llm.generate(PROMPT, params)
    pieces = list(llm.stream(PROMPT, params))
    assert "".join(p.text for p in pieces) == whole.text
    assert [p.token_id for p in pieces[:-1]] == whole.token_ids
    assert pieces[-1].finish_reason == whole.finish_reason
    for count, _ in enumerate(llm.stream(PROMPT, tessera.SamplingParams(max_tokens=-1, ignore_eos=True))):
        if count == 3:
            break
    assert wait_until(lambda: llm.stats().running == 0, 5)


def test_a_stream_that_was_never_begun_ends_with_its_object(llm):
    cancelled = llm.stats().cancelled
    pieces = llm.stream(PROMPT, tessera.SamplingParams(max_tokens=-1, ignore_eos=True))
    assert wait_until(lambda: llm.stats().running == 1, 5)
    del pieces
    assert wait_until(lambda: llm.stats().running == 0, 5) and llm.stats().cancelled == cancelled + 1
    closed = llm.stream(PROMPT, tessera.SamplingParams(max_tokens=-1, ignore_eos=True))
    next(closed)
    closed.close()
    assert list(closed) == []


def test_a_stream_keeps_its_model():
    """Nobody holds the LLM but the loop."""
    pieces = tessera.LLM(device="cpu", max_sequences=1, context=64).stream(PROMPT, tessera.SamplingParams(max_tokens=8))
    gc.collect()
    *tokens, last = pieces
    assert len(tokens) == 8 and last.finish_reason == "max_tokens"


def test_async_streams_run_side_by_side(llm):
    async def read(seed: int) -> list[int]:
        pieces = [p async for p in llm.astream(PROMPT, tessera.SamplingParams(max_tokens=8, seed=seed))]
        return [p.token_id for p in pieces if p.token_id is not None]

    async def both() -> list[list[int]]:
        return await asyncio.gather(read(1), read(2))

    for seed, ids in enumerate(asyncio.run(both()), start=1):
        assert ids == llm.generate(PROMPT, tessera.SamplingParams(max_tokens=8, seed=seed))[0].token_ids


def test_chat_speaks_a_template_and_says_where_there_is_none(llm):
    messages = [{"role": "user", "content": "Tell me a story."}]
    answer = llm.chat(messages, tessera.SamplingParams(temperature=0, max_tokens=8), chat_template="plain")
    assert len(answer.token_ids) == 8 and "story" in llm.tokenizer.decode(answer.prompt_token_ids)
    with pytest.raises(tessera.Error, match="name one with chat_template="):
        llm.chat(messages)
    with pytest.raises(tessera.Error, match="take turns"):  # the template's own words
        llm.chat([{"role": "bot", "content": "hi"}], chat_template="llama2")


TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }} says: {{ m.content }}"
    "{% if m.role == 'assistant' %}.{% endif %} {% endfor %}{% if add_generation_prompt %}Once upon a time{% endif %}"
)


def test_chat_takes_the_folders_own_template_and_ends_with_its_end_token(tmp_path):
    """The bundled model, to which a full stop is a control token here: one that ends an answer in the template."""
    folder = tmp_path / "model"
    shutil.copytree(tessera.default_model(), folder)
    config, parts = (json.loads((folder / name).read_text()) for name in ("tokenizer_config.json", "tokenizer.json"))
    end = parts["model"]["vocab"]["."]
    parts["added_tokens"].append({**parts["added_tokens"][0], "id": end, "content": "."})
    (folder / "tokenizer.json").write_text(json.dumps(parts))
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TEMPLATE}))
    llm = tessera.LLM(folder, device="cpu", max_sequences=1, context=256)
    params = tessera.SamplingParams(temperature=0, max_tokens=64)
    answer = llm.chat([{"role": "user", "content": "Tell me a story"}], params)
    text = "user says: Tell me a story Once upon a time"
    (endless,) = llm.generate(text, params)
    assert answer.prompt_token_ids == endless.prompt_token_ids
    assert end in endless.token_ids[:-1]  # which generate() does not end with
    told = endless.token_ids[: endless.token_ids.index(end)]
    assert answer.finish_reason == "eos" and answer.token_ids in (told, [*told, end])
    assert answer.text and "." not in answer.text
    named = llm.chat([{"role": "user", "content": "Tell me a story"}], params, chat_template="plain")
    assert named.prompt_token_ids != answer.prompt_token_ids


def test_an_endless_stream_keeps_its_memory():
    llm = tessera.LLM(device="cpu", streaming=(4, 60), max_sequences=1, context=256)
    (result,) = llm.generate(PROMPT, tessera.SamplingParams(max_tokens=600, ignore_eos=True, seed=1))
    assert len(result.token_ids) == 600 and llm.stats().pages_peak <= 5


def test_bad_requests_are_refused_in_a_sentence(llm):
    for prompt, params, message in (
        (PROMPT, tessera.SamplingParams(temperature=-1), "temperature"),
        (PROMPT, tessera.SamplingParams(top_p=2), "top_p"),
        ([10**6], tessera.SamplingParams(), "vocabulary"),
    ):
        with pytest.raises(tessera.Error, match=message):
            llm.generate([prompt], params)


def test_ids_may_be_arrays(llm):
    params = tessera.SamplingParams(temperature=0, max_tokens=4)
    ids = llm.tokenizer.encode(PROMPT)
    (expected,) = llm.generate(ids, params)
    for given in (np.array(ids), torch.tensor(ids), [np.int32(i) for i in ids], tuple(ids)):
        (ours,) = llm.generate(given, params)
        assert ours.token_ids == expected.token_ids and ours.prompt_token_ids == ids
        assert [p.token_id for p in llm.stream(given, params)][:-1] == expected.token_ids
    both = llm.generate(torch.tensor([ids, ids[::-1]]), params)  # a row for each prompt
    assert both[0].token_ids == expected.token_ids and both[1].prompt_token_ids == ids[::-1]
    assert tessera.perplexity(llm, np.array(ids * 4)).tokens == 4 * len(ids) - 1
    assert llm.generate([], params) == []


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (b"Once", r"^b'Once' is no prompt; give text \(str\) or token ids"),
        (None, "^None is no prompt"),
        ([1.5, 2.0], "^1.5 is no prompt"),
        (np.ones(3, np.float32), "is no prompt"),
        ([3, 2**40], "^token id 1099511627776 is in no vocabulary"),
        ([-1], "^token id -1 is in no vocabulary"),
        ("half \ud800", "^the prompt has a surrogate"),
    ],
    ids=repr,
)
def test_what_is_no_prompt_is_refused_in_a_sentence(llm, prompt, message):
    with pytest.raises(tessera.Error, match=message):
        llm.generate(prompt)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": "hot"}, "^SamplingParams: temperature is 'hot'; give a number$"),
        ({"top_k": None}, "^SamplingParams: top_k is None; give a whole number$"),
        ({"seed": -1}, r"^SamplingParams: seed is -1; give a whole number from 0 to 2\*\*64 - 1$"),
        ({"logit_bias": [5]}, r"^SamplingParams: logit_bias is \[5\]; give numbers by token id$"),
        ({"max_tokens": None}, "^SamplingParams: max_tokens is None; give a whole number$"),
        ({"stop": "\ud800"}, "^SamplingParams: stop is .*; give text"),
        ({"stop": [5]}, r"^SamplingParams: stop is \[5\]; give text, or a list of texts$"),
        ({"stop_token_ids": ["."]}, r"^SamplingParams: stop_token_ids is \['.'\]; give token ids$"),
    ],
    ids=str,
)
def test_params_of_the_wrong_kind_are_refused_in_a_sentence(llm, options, message):
    with pytest.raises(tessera.Error, match=message):
        llm.generate(PROMPT, tessera.SamplingParams(**options))


def test_params_may_be_none_and_nothing_but_params(llm):
    temperature = np.float32(0.8)  # numpy's comparison gives no bool of Python's
    none = tessera.SamplingParams(max_tokens=4, stop=None, stop_token_ids=None, logit_bias=None)
    assert llm.generate(PROMPT, tessera.SamplingParams(temperature=temperature, max_tokens=np.int64(2)))[0].text
    (ours,) = llm.generate(PROMPT, none)
    assert ours.token_ids == llm.generate(PROMPT, tessera.SamplingParams(max_tokens=4))[0].token_ids
    for call in (llm.generate, llm.stream):
        with pytest.raises(tessera.Error, match=r"^params is a dict; give tessera.SamplingParams\(...\)$"):
            call(PROMPT, {"max_tokens": 4})
    for message in ("Hello", {"role": "user"}, {"role": "user", "content": None}):
        with pytest.raises(tessera.Error, match=r'^chat: .* is no message; give \{"role": "user", "content": "..."\}'):
            llm.chat([message], chat_template="plain")
    for streaming in (4, (4, 60, 1), ("a", "b")):
        with pytest.raises(tessera.Error, match=r"^streaming is .*; give \(sinks, window\), as in \(4, 1020\)$"):
            tessera.LLM(device="cpu", streaming=streaming, max_sequences=1, context=64)
    with pytest.raises(TypeError, match="max_seqs"):  # before anything is loaded
        tessera.LLM("/nowhere", max_seqs=4)
    with pytest.raises(tessera.Error, match="^perplexity: device, weights cannot change a loaded LLM"):
        tessera.perplexity(llm, PROMPT, device="cpu", weights="int8")
    with pytest.raises(tessera.Error, match="^quantize: out= is for a checkpoint's folder"):
        tessera.quantize(np.ones((4, 32), np.float32), "folder")


def test_results_go_to_other_processes(llm):
    (result,) = llm.generate(PROMPT, tessera.SamplingParams(max_tokens=4, logprobs=1))
    there = pickle.loads(pickle.dumps(result))
    assert there.outputs == result.outputs and there.usage.generated_tokens == 4
    assert there.usage.total_seconds == result.usage.total_seconds


def child_generates() -> str:
    try:
        BEFORE_THE_FORK[0].generate(PROMPT)
    except tessera.Error as error:
        return str(error)
    return "no error"


BEFORE_THE_FORK: list[tessera.LLM] = []


def test_an_llm_in_the_child_of_a_fork_is_refused(llm):
    """Its engine's thread is in the parent: nobody would ever answer."""
    BEFORE_THE_FORK[:] = [llm]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(child_generates).get(60).startswith("this LLM was made before a fork")


REPETITIVE = "The cat sat on the mat. The dog sat on the cat. " * 8


@pytest.mark.parametrize(
    "options",
    [
        {"speculate": "ngram"},
        {"prefix_cache": False},
        {"max_step_tokens": 16},
        {"batch_invariant": True, "warm_up": True},
    ],
    ids=" ".join,
)
def test_options_of_the_engine_leave_the_tokens(llm, options):
    params = tessera.SamplingParams(max_tokens=40, seed=3, ignore_eos=True)
    (expected,) = llm.generate(REPETITIVE, params)
    other = tessera.LLM(device="cpu", max_sequences=1, context=256, **options)
    (first,) = other.generate(REPETITIVE, params)
    (again,) = other.generate(REPETITIVE, params)
    assert first.token_ids == again.token_ids == expected.token_ids
    prompt = len(first.prompt_token_ids)
    assert prompt > 64 and first.usage.cached_tokens == 0  # more than a page
    assert (again.usage.cached_tokens == 0) == (options == {"prefix_cache": False})
    if "max_step_tokens" in options:
        assert other.stats().steps > prompt / 16 + 2 * 39
    with pytest.raises(tessera.Error, match="speculate 'words' is not known; give one of: off, ngram"):
        tessera.LLM(device="cpu", max_sequences=1, context=64, speculate="words")


def test_a_request_beyond_max_waiting_is_refused():
    llm = tessera.LLM(device="cpu", streaming=(4, 60), max_sequences=1, context=256, max_waiting=1)
    running = llm.stream(PROMPT, tessera.SamplingParams(max_tokens=-1, ignore_eos=True))
    next(running)
    waiting = llm.stream(PROMPT, tessera.SamplingParams(max_tokens=4))
    assert wait_until(lambda: llm.stats().waiting == 1, 5)
    with pytest.raises(tessera.Error, match="1 requests are waiting, as many as the queue holds") as caught:
        llm.generate(PROMPT)
    assert caught.value.code == "busy"
    running.close()
    assert [piece.finish_reason for piece in waiting][-1] == "max_tokens"


def test_ctrl_c_ends_a_generation():
    """The stream has no end: only the signal ends it. It is sent once the answer has begun."""
    llm = tessera.LLM(device="cpu", streaming=(4, 60), max_sequences=1, context=256)
    over, sent = threading.Event(), []

    def interrupt():
        wait_until(lambda: over.is_set() or llm.stats().generated_tokens >= 3)
        if not over.is_set():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            llm.generate(PROMPT, tessera.SamplingParams(max_tokens=-1, ignore_eos=True))
        assert time.monotonic() - sent[0] < 5
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert wait_until(lambda: llm.stats().running == 0, 5) and llm.stats().cancelled == 1
    assert len(llm.generate(PROMPT, tessera.SamplingParams(max_tokens=3))[0].token_ids) == 3


def test_ctrl_c_ends_a_perplexity(llm):
    """Of a stream that takes minutes."""
    ids = llm.tokenizer.encode(REPETITIVE) * 2000
    thread = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            tessera.perplexity(llm, ids, streaming=(4, 60))
        assert time.monotonic() - begin < 5
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)


def test_tokenizer_and_perplexity(llm, tmp_path):
    tokenizer = tessera.load_tokenizer()
    ids = tokenizer.encode(PROMPT)
    assert all(tokenizer.decode(given) == PROMPT for given in (ids, np.array(ids), torch.tensor(ids), iter(ids)))
    with pytest.raises(tessera.Error, match="^token id 1099511627776 is in no vocabulary"):
        tokenizer.decode([2**40])
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        tokenizer.encode("half \ud800")
    text = "Once upon a time there was a little girl named Lily. She liked to play in the park with her dog. " * 4
    ours = tessera.perplexity(llm, text)
    assert ours.tokens > 50 and 1 < ours.ppl < 60
    eight = tessera.perplexity(llm, text, cache_dtype="int8")
    assert 0 < abs(eight.nll - ours.nll) < 0.02
    stream = tessera.perplexity(None, text, streaming=(4, 60), device="cpu")
    assert abs(stream.nll - ours.nll) < 1.0
    file = tmp_path / "text.txt"
    file.write_text(text)
    for result, flags in ((ours, []), (stream, ["--attention-sinks", "4", "--window", "60"])):
        theirs = command_line("perplexity", str(file), *flags)
        assert theirs["tokens"] == result.tokens and theirs["nll"] == pytest.approx(result.nll, abs=1e-9)


def test_a_checkpoint_is_packed(tmp_path):
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=1
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "dense")
    ids = [(7 * i * i) % 64 for i in range(64)]
    dense = tessera.perplexity(tmp_path / "dense", ids, device="cpu")
    out = tessera.quantize(tmp_path / "dense", tmp_path / "packed", format="nvfp4")
    packed = tessera.perplexity(out, ids, device="cpu")
    assert 0 < abs(packed.nll - dense.nll) < 0.1
    with pytest.raises(tessera.Error, match="exists|not empty|force"):
        tessera.quantize(tmp_path / "dense", out)
    tessera.quantize(tmp_path / "dense", out, format="nvfp4", pack_embedding=True, force=True)
    assert 0 < abs(tessera.perplexity(out, ids, device="cpu").nll - packed.nll) < 0.1
    with pytest.raises(tessera.Error, match="is a folder; name the folder to write with out="):
        tessera.quantize(tmp_path / "dense")


@pytest.mark.gpu
def test_greedy_tokens_on_the_gpu_are_those_of_the_cpu_in_f32():
    prompts = [PROMPT, "The little dog", "Lily saw"]
    params = tessera.SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
    on_cpu = tessera.LLM(device="cpu", dtype="f32", activations="exact", max_sequences=4)
    on_gpu = tessera.LLM(device="cuda", dtype="f32", max_sequences=4)
    expected = [result.token_ids for result in on_cpu.generate(prompts, params)]
    assert [result.token_ids for result in on_gpu.generate(prompts, params)] == expected
    assert [on_gpu.generate(one, params)[0].token_ids for one in prompts] == expected, "alone as in company"


@pytest.mark.gpu
def test_a_stream_past_its_window_on_the_gpu_is_that_of_the_cpu_in_f32():
    params = tessera.SamplingParams(temperature=0, max_tokens=160, ignore_eos=True)
    options = {"dtype": "f32", "streaming": (4, 60), "max_sequences": 1, "context": 128}
    (expected,) = tessera.LLM(device="cpu", activations="exact", **options).generate(PROMPT, params)
    (ours,) = tessera.LLM(device="cuda", **options).generate(PROMPT, params)
    assert ours.token_ids == expected.token_ids
