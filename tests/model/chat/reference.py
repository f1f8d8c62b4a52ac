"""jinja2, set up as transformers sets it up for chat templates, and our interpreter behind a pipe."""

import copy
import datetime
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

UNIX_TIME = 1_721_995_200  # 2024-07-26 12:00 UTC


class Generation(Extension):
    """{% generation %}: the text of its body."""

    tags: ClassVar[set[str]] = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Any) -> str:
        return caller()


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def strftime_now(form: str) -> str:
    return datetime.datetime.fromtimestamp(UNIX_TIME).strftime(form)


def environment() -> ImmutableSandboxedEnvironment:
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    env.filters["tojson"] = to_json
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


@dataclass
class Case:
    source: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    variables: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=lambda: {"bos_token": "<s>", "eos_token": "</s>"})
    add_generation_prompt: bool = True


@dataclass
class Outcome:
    text: str | None  # None: refused
    error: str = ""


def by_jinja2(env: ImmutableSandboxedEnvironment, case: Case) -> Outcome:
    # A copy: | indent of a list changes the list in jinja2.
    given = copy.deepcopy({"tools": None, "documents": None, "messages": case.messages} | case.variables | case.tokens)
    try:
        text = env.from_string(case.source).render(add_generation_prompt=case.add_generation_prompt, **given)
    except Exception as error:  # noqa: BLE001 - whatever a template does wrong is an exception of Python
        return Outcome(None, f"{type(error).__name__}: {error}")
    return Outcome(text)


def by_tessera(program: str, cases: Iterable[Case]) -> list[Outcome]:
    lines = "".join(json.dumps(vars(case) | {"unix_time": UNIX_TIME}) + "\n" for case in cases)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True, timeout=280)
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    return [Outcome(answer.get("text"), answer.get("error", "")) for answer in answers]
