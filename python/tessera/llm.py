"""`LLM`: prompts in, text out, on the engine that also serves the command line."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import _native
from .checkpoints import PathLike, default_model

Prompt = str | Sequence[int]


@dataclass(frozen=True)
class SamplingParams:
    """How an answer is drawn and when it ends. The defaults are those of the command line.

    >>> params = tessera.SamplingParams(temperature=0, max_tokens=32, stop=["."])
    """

    temperature: float = 0.8  # 0: the most likely token
    top_k: int = 0  # 0: all
    top_p: float = 0.95
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int = 0
    max_tokens: int = 256  # -1: no limit
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # so many of the most likely tokens beside each drawn one
    n: int = 1  # answers; answer i draws with seed + i

    def native(self) -> _native.SamplingOptions:
        options = _native.SamplingOptions()
        options.greedy = self.temperature == 0
        if self.temperature != 0:
            options.temperature = self.temperature
        for name in ("top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed"):
            setattr(options, name, getattr(self, name))
        options.logit_bias = list(self.logit_bias.items())
        return options


@dataclass
class Completion:
    """One answer; `logprobs` has as many entries as `token_ids`.

    >>> params = tessera.SamplingParams(max_tokens=4, n=2)
    >>> [len(answer.token_ids) for answer in tessera.LLM().generate("Once", params)[0].outputs]
    [4, 4]
    """

    index: int = 0
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, float]] | None = None  # of each token: its own, and the most likely ones
    finish_reason: str | None = None  # max_tokens, eos, stop_string, cancelled, context_full, deadline


@dataclass
class RequestOutput:
    """All answers to one prompt. `text`, `token_ids` and `finish_reason` are those of the first.

    >>> (result,) = tessera.LLM().generate("Once upon a time", tessera.SamplingParams(max_tokens=4))
    >>> len(result.token_ids), result.finish_reason
    (4, 'max_tokens')
    """

    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[Completion]
    usage: _native.Usage | None = None

    @property
    def text(self) -> str:
        return self.outputs[0].text

    @property
    def token_ids(self) -> list[int]:
        return self.outputs[0].token_ids

    @property
    def finish_reason(self) -> str | None:
        return self.outputs[0].finish_reason


@dataclass(frozen=True)
class StreamPiece:
    """What one token adds to an answer: `text` may be empty until its characters are whole.

    >>> pieces = list(tessera.LLM().stream("Once upon a time", tessera.SamplingParams(max_tokens=4)))
    >>> len(pieces), pieces[-1].token_id, pieces[-1].finish_reason
    (5, None, 'max_tokens')
    """

    text: str
    token_id: int | None  # None with the last piece of an answer, which has a finish_reason
    index: int = 0
    finish_reason: str | None = None


class Loaded:
    """A model, its tokenizer and a Context for them."""

    def __init__(
        self, model: PathLike | None = None, *, device: str = "auto", dtype: str | None = None, weights: str = "dense",
        keep_dense: Sequence[str] = (), activations: str = "int8", threads: int = 0, mmap: bool = True,
    ) -> None:
        self.directory = default_model() if model is None else Path(model)
        self.ctx = _native.Context(device, threads=threads, activations=activations)
        self.model = _native.load_model(
            self.ctx, self.directory, dtype=dtype, weights=weights, keep_dense=list(keep_dense), mmap=mmap
        )
        self.tokenizer: _native.Tokenizer | None = None  # without it, prompts and answers are ids
        self._prompt: _native.PromptEncoder | None = None
        if (self.directory / "tokenizer.json").exists():
            self.tokenizer = _native.Tokenizer.from_file(self.directory)
            self._prompt = _native.PromptEncoder(self.tokenizer, self.model.config, self.directory)

    @property
    def prompt(self) -> _native.PromptEncoder:
        if self._prompt is None:
            raise _native.Error(f"{self.directory} has no tokenizer.json, so text cannot be read; give token ids")
        return self._prompt


class LLM:
    """A model that answers any number of prompts at once.

    model: a folder of a Hugging Face checkpoint; None: the bundled story model. streaming=(sinks, window): endless
    streams in constant memory. weights="nvfp4" packs dense layers while loading. activations: how the CPU
    multiplies packed weights, "int8" as the command line does or "exact". The engine's options: context,
    max_sequences, max_step_tokens, max_waiting, pages, cache_dtype ("int8" and "fp8" halve the memory of f16),
    prefix_cache, speculate, batch_invariant (on a GPU: the same bits in any company), warm_up (on a GPU: runs a step of
    each size first, so that no request waits for a kernel's first use).

    >>> llm = tessera.LLM()
    >>> result = llm.generate("Once upon a time", tessera.SamplingParams(temperature=0, max_tokens=8))[0]
    >>> len(result.token_ids)
    8
    """

    def __init__(
        self, model: PathLike | None = None, *, device: str = "auto", dtype: str | None = None, weights: str = "dense",
        keep_dense: Sequence[str] = (), activations: str = "int8", threads: int = 0, mmap: bool = True,
        streaming: tuple[int, int] | None = None, **engine_options: Any,
    ) -> None:
        self.loaded = Loaded(
            model, device=device, dtype=dtype, weights=weights, keep_dense=keep_dense, activations=activations,
            threads=threads, mmap=mmap,
        )
        self.streaming = streaming
        self._engine = _native.Engine(self.loaded.ctx, self.loaded.model, self.loaded.tokenizer, **engine_options)

    @property
    def tokenizer(self) -> _native.Tokenizer | None:
        return self.loaded.tokenizer

    @property
    def config(self) -> _native.ModelConfig:
        return self.loaded.model.config

    def stats(self) -> _native.EngineStats:
        """What the engine has done so far."""
        return self._engine.stats()

    def generate(
        self, prompts: Prompt | Iterable[Prompt], params: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> list[RequestOutput]:
        """Answers a prompt (text or token ids) or a list of them, all at once; results in the order of the prompts.

        >>> [r.text for r in llm.generate(["The cat", "The dog"], tessera.SamplingParams(max_tokens=8))]
        """
        listed = [prompts] if _is_prompt(prompts) else list(prompts)
        each = [params or SamplingParams()] * len(listed) if not isinstance(params, Sequence) else list(params)
        if len(each) != len(listed):
            raise _native.Error(f"generate: {len(listed)} prompts and {len(each)} SamplingParams; give one for each")
        handles: list[_native.RequestHandle] = []
        outputs = []
        try:
            for prompt, one in zip(listed, each, strict=True):
                ids = self._ids(prompt)
                handles.append(self._submit(ids, one))
                outputs.append(RequestOutput(prompt if isinstance(prompt, str) else None, ids, _answers(one)))
            for handle, output in zip(handles, outputs, strict=True):
                _collect(handle, output)
        finally:
            for handle in handles:
                handle.cancel()  # where an error or Ctrl-C came between; done ones ignore it
        return outputs

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[StreamPiece]:
        """The pieces of an answer as they come. Leaving the loop ends the request.

        >>> for piece in llm.stream("Once upon a time"):
        ...     print(piece.text, end="", flush=True)
        """
        return _pieces(self._submit(self._ids(prompt), params or SamplingParams()))

    async def astream(self, prompt: Prompt, params: SamplingParams | None = None) -> AsyncIterator[StreamPiece]:
        """`stream` for asyncio: `async for piece in llm.astream(prompt)`."""
        handle = self._submit(self._ids(prompt), params or SamplingParams())
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[StreamPiece | BaseException | None] = asyncio.Queue()
        thread = threading.Thread(target=_forward, args=(handle, loop, arrived), daemon=True)
        thread.start()
        try:
            while (piece := await arrived.get()) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            handle.cancel()

    def chat(
        self, messages: Sequence[dict[str, str]], params: SamplingParams | None = None, *,
        chat_template: str | None = None,
    ) -> RequestOutput:
        """Answers a conversation: [{"role": "user", "content": text}, ...], with the roles that the template takes.

        chat_template: chatml, llama3, llama2, mistral, zephyr or plain; without it, the one of the model's folder.

        >>> llm.chat([{"role": "user", "content": "Tell me a story."}], chat_template="plain").text
        """
        ids, end = self._chat_ids(messages, chat_template)
        params = params or SamplingParams()
        output = RequestOutput(None, ids, _answers(params))
        handle = self._submit(ids, params, [] if end < 0 else [end])
        try:
            _collect(handle, output)
        finally:
            handle.cancel()
        return output

    def _chat_ids(self, messages: Sequence[dict[str, str]], chat_template: str | None) -> tuple[list[int], int]:
        """The conversation as ids, and the token that ends the answer: all that this package knows of templates."""
        turns = [(message["role"], message["content"]) for message in messages]
        return _native.encode_chat(self.loaded.prompt, self.loaded.directory, turns, chat_template)

    def _ids(self, prompt: Prompt) -> list[int]:
        return self.loaded.prompt.encode(prompt) if isinstance(prompt, str) else [int(i) for i in prompt]

    def _submit(self, ids: list[int], params: SamplingParams, more_stops: Sequence[int] = ()) -> _native.RequestHandle:
        return self._engine.submit(
            ids, max_tokens=params.max_tokens, ignore_eos=params.ignore_eos,
            stop_ids=[*params.stop_token_ids, *more_stops],
            stop=[params.stop] if isinstance(params.stop, str) else list(params.stop), sampling=params.native(),
            top_logprobs=-1 if params.logprobs is None else params.logprobs, n=params.n, streaming=self.streaming,
        )


def _is_prompt(prompts: Any) -> bool:
    return isinstance(prompts, str) or (
        isinstance(prompts, Sequence) and len(prompts) > 0 and isinstance(prompts[0], int)
    )


def _answers(params: SamplingParams) -> list[Completion]:
    return [Completion(i, logprobs=None if params.logprobs is None else []) for i in range(params.n)]


def _raise_if_failed(event: _native.Event) -> None:
    if event.kind == "failed":
        error = _native.Error(event.message)
        error.code = event.code
        raise error


def _collect(handle: _native.RequestHandle, output: RequestOutput) -> None:
    while (event := handle.next()) is not None:
        _raise_if_failed(event)
        answer = output.outputs[event.choice]
        if event.kind == "finished":
            answer.finish_reason = event.reason
            answer.text += event.text
            output.usage = event.usage
            continue
        answer.token_ids.append(event.token_id)
        answer.text += event.text
        if answer.logprobs is not None:
            answer.logprobs.append({one.id: one.logprob for one in [*event.top, event.logprob]})


def _pieces(handle: _native.RequestHandle) -> Iterator[StreamPiece]:
    try:
        while (event := handle.next()) is not None:
            _raise_if_failed(event)
            if event.kind == "finished":
                yield StreamPiece(event.text, None, event.choice, event.reason)
            else:
                yield StreamPiece(event.text, event.token_id, event.choice)
    finally:
        handle.cancel()


def _forward(
    handle: _native.RequestHandle, loop: asyncio.AbstractEventLoop, arrived: "asyncio.Queue[Any]"
) -> None:
    """Runs on a thread of its own: hands the pieces to the event loop, then None."""
    try:
        for piece in _pieces(handle):
            loop.call_soon_threadsafe(arrived.put_nowait, piece)
        last: BaseException | None = None
    except BaseException as error:
        last = error
    try:
        if last is not None:
            loop.call_soon_threadsafe(arrived.put_nowait, last)
        loop.call_soon_threadsafe(arrived.put_nowait, None)
    except RuntimeError:
        pass  # the loop was closed meanwhile: nobody waits
