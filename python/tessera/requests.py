"""What a caller gives to an `LLM`, and what comes back."""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _native

Prompt = str | Sequence[int]  # ids may be an array of integers, too


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
    logit_bias: dict[int, float] | None = field(default_factory=dict)
    seed: int = 0
    max_tokens: int = 256  # -1: no limit
    stop: str | Sequence[str] | None = ()
    stop_token_ids: Sequence[int] | None = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # so many of the most likely tokens beside each drawn one
    n: int = 1  # answers; answer i draws with seed + i

    def __post_init__(self) -> None:
        """Kinds of values alone: the engine knows their limits."""
        whole = ["top_k", "max_tokens", "n"] + ([] if self.logprobs is None else ["logprobs"])
        numbers = ["temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"]
        self._check("a whole number", operator.index, *whole)
        self._check("a number", _number, *numbers)
        self._check("a whole number from 0 to 2**64 - 1", lambda seed: operator.index(seed).to_bytes(8, "big"), "seed")
        self._check("text, or a list of texts", lambda stop: "".join(stop or ()).encode(), "stop")
        self._check("token ids", lambda ids: [operator.index(i) for i in ids or ()], "stop_token_ids")
        self._check(
            "numbers by token id", lambda bias: [(operator.index(i), _number(b)) for i, b in (bias or {}).items()],
            "logit_bias",
        )

    def _check(self, kind: str, read: Callable[[Any], object], *names: str) -> None:
        for name in names:
            try:
                read(getattr(self, name))
            except (TypeError, ValueError, AttributeError, OverflowError):
                raise _native.Error(f"SamplingParams: {name} is {getattr(self, name)!r}; give {kind}") from None

    def native(self) -> _native.SamplingOptions:
        options = _native.SamplingOptions()
        options.greedy = bool(self.temperature == 0)
        if self.temperature != 0:
            options.temperature = self.temperature
        for name in ("top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed"):
            setattr(options, name, getattr(self, name))
        options.logit_bias = list((self.logit_bias or {}).items())
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


def _number(value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError
    return float(value)


def is_prompt(prompts: Any) -> bool:
    """Whether this is one prompt: a text, or ids, which may be an array's."""
    if isinstance(prompts, (str, bytes, bytearray)) or not isinstance(prompts, Iterable):
        return True
    first = next(iter(prompts), None) if hasattr(prompts, "__len__") else None
    return hasattr(first, "__index__") and getattr(first, "ndim", 0) == 0


def token_ids(ids: Any) -> list[int]:
    try:
        if isinstance(ids, (bytes, bytearray)):
            raise TypeError
        listed = [operator.index(i) for i in ids]
    except TypeError:
        told = repr(ids) if len(repr(ids)) < 60 else f"a {type(ids).__name__}"
        raise _native.Error(f"{told} is no prompt; give text (str) or token ids (whole numbers)") from None
    beyond = next((i for i in listed if not 0 <= i < 2**31), None)
    if beyond is not None:
        raise _native.Error(f"token id {beyond} is in no vocabulary; give ids of this model's tokenizer")
    return listed


def is_text(value: Any) -> bool:
    """A str of whole characters: without lone surrogates."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def turn(message: Any) -> tuple[str, str]:
    if isinstance(message, dict) and is_text(message.get("role")) and is_text(message.get("content")):
        return message["role"], message["content"]
    raise _native.Error(f'chat: {message!r} is no message; give {{"role": "user", "content": "..."}}, both of text')


def require_streaming(streaming: Any) -> tuple[int, int] | None:
    try:
        sinks, window = streaming or (0, 0)
        return streaming and (operator.index(sinks), operator.index(window))
    except (TypeError, ValueError):
        raise _native.Error(f"streaming is {streaming!r}; give (sinks, window), as in (4, 1020)") from None


def require_params(params: Any) -> SamplingParams:
    if not isinstance(params, SamplingParams):
        raise _native.Error(f"params is a {type(params).__name__}; give tessera.SamplingParams(...)")
    return params


def answers(params: SamplingParams) -> list[Completion]:
    return [Completion(i, logprobs=None if params.logprobs is None else []) for i in range(params.n)]
