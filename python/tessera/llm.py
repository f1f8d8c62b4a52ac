"""`LLM`: prompts in, text out, on the engine that also serves the command line."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import _native
from .checkpoints import PathLike, default_model, patterns
from .requests import (
    Prompt,
    RequestOutput,
    SamplingParams,
    StreamPiece,
    answers,
    is_prompt,
    is_text,
    require_params,
    require_streaming,
    token_ids,
    turn,
)


class Loaded:
    """A model, its tokenizer and a Context for them."""

    def __init__(
        self, model: PathLike | None = None, *, device: str = "auto", dtype: str | None = None,
        weights: str | None = "dense", keep_dense: str | Sequence[str] = (), activations: str = "int8",
        threads: int = 0, mmap: bool = True,
    ) -> None:
        self.directory = default_model() if model is None else Path(model)
        self.ctx = _native.Context(device, threads=threads, activations=activations)
        self.model = _native.load_model(
            self.ctx, self.directory, dtype=dtype, weights=weights or "dense", keep_dense=patterns(keep_dense),
            mmap=mmap,
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
    streams in constant memory. weights="nvfp4" packs dense layers while loading, but those that keep_dense names.
    activations: how the CPU multiplies packed weights, "int8" as the command line does or "exact". The engine's
    options: context, max_sequences, max_step_tokens, max_waiting, pages, cache_dtype ("int8" and "fp8" halve the
    memory of f16), prefix_cache, speculate ("ngram"), batch_invariant (on a GPU: the same bits in any company),
    warm_up (on a GPU: runs a step of each size first, so that no request waits for a kernel's first use).

    >>> llm = tessera.LLM()
    >>> result = llm.generate("Once upon a time", tessera.SamplingParams(temperature=0, max_tokens=8))[0]
    >>> len(result.token_ids)
    8
    """

    def __init__(
        self, model: PathLike | None = None, *, device: str = "auto", dtype: str | None = None,
        weights: str | None = "dense", keep_dense: str | Sequence[str] = (), activations: str = "int8",
        threads: int = 0, mmap: bool = True, streaming: tuple[int, int] | None = None, context: int = 0,
        max_sequences: int = 32, max_step_tokens: int = 512, max_waiting: int = 4096, pages: int = 0,
        cache_dtype: str | None = None, prefix_cache: bool = True, batch_invariant: bool = False, warm_up: bool = False,
        speculate: str = "off",
    ) -> None:
        self.streaming = require_streaming(streaming)
        self.loaded = Loaded(
            model, device=device, dtype=dtype, weights=weights, keep_dense=keep_dense, activations=activations,
            threads=threads, mmap=mmap,
        )
        self._process = os.getpid()  # a fork leaves the engine's thread behind
        self._engine = _native.Engine(
            self.loaded.ctx, self.loaded.model, self.loaded.tokenizer, context=context, max_sequences=max_sequences,
            max_step_tokens=max_step_tokens, max_waiting=max_waiting, pages=pages, cache_dtype=cache_dtype,
            prefix_cache=prefix_cache, batch_invariant=batch_invariant, warm_up=warm_up, speculate=speculate,
        )

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
        listed = [prompts] if is_prompt(prompts) else list(prompts)
        each = [params or SamplingParams()] * len(listed) if not isinstance(params, Sequence) else list(params)
        if len(each) != len(listed):
            raise _native.Error(f"generate: {len(listed)} prompts and {len(each)} SamplingParams; give one for each")
        handles: list[_native.RequestHandle] = []
        outputs = []
        try:
            for prompt, one in zip(listed, each, strict=True):
                require_params(one)
                ids = self._ids(prompt)
                handles.append(self._submit(ids, one))
                outputs.append(RequestOutput(prompt if isinstance(prompt, str) else None, ids, answers(one)))
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
        return _Pieces(self._submit(self._ids(prompt), params or SamplingParams()))

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
        params = require_params(params or SamplingParams())
        output = RequestOutput(None, ids, answers(params))
        handle = self._submit(ids, params, [] if end < 0 else [end])
        try:
            _collect(handle, output)
        finally:
            handle.cancel()
        return output

    def _chat_ids(self, messages: Sequence[dict[str, str]], chat_template: str | None) -> tuple[list[int], int]:
        """The conversation as ids, and the token that ends the answer: all that this package knows of templates."""
        turns = [turn(message) for message in messages]
        return _native.encode_chat(self.loaded.prompt, self.loaded.directory, turns, chat_template)

    def _ids(self, prompt: Prompt) -> list[int]:
        if not isinstance(prompt, str):
            return token_ids(prompt)
        if not is_text(prompt):
            raise _native.Error(f"the prompt has a surrogate, which is half a character: {prompt[:60]!r}")
        return self.loaded.prompt.encode(prompt)

    def _submit(self, ids: list[int], params: SamplingParams, more_stops: Sequence[int] = ()) -> _native.RequestHandle:
        if os.getpid() != self._process:
            raise _native.Error("this LLM was made before a fork, and its engine runs in the parent: make one here")
        require_params(params)
        return self._engine.submit(
            ids, max_tokens=params.max_tokens, ignore_eos=params.ignore_eos,
            stop_ids=[*(params.stop_token_ids or ()), *more_stops],
            stop=[params.stop] if isinstance(params.stop, str) else list(params.stop or ()), sampling=params.native(),
            top_logprobs=-1 if params.logprobs is None else params.logprobs, n=params.n, streaming=self.streaming,
        )


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


class _Pieces(Iterator[StreamPiece]):
    """The pieces of a request, which ends with this object: a generator that was never begun would leave it running."""

    def __init__(self, handle: _native.RequestHandle) -> None:
        self._handle: _native.RequestHandle | None = handle

    def __next__(self) -> StreamPiece:
        event = None if self._handle is None else self._handle.next()
        if event is None:
            self.close()
            raise StopIteration
        _raise_if_failed(event)
        if event.kind == "finished":
            return StreamPiece(event.text, None, event.choice, event.reason)
        return StreamPiece(event.text, event.token_id, event.choice)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None

    def __del__(self) -> None:
        self.close()


def _forward(
    handle: _native.RequestHandle, loop: asyncio.AbstractEventLoop, arrived: "asyncio.Queue[Any]"
) -> None:
    """Runs on a thread of its own: hands the pieces to the event loop, then None."""
    try:
        for piece in _Pieces(handle):
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
