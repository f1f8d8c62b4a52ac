"""Functions have the fields of the headers' structs as keywords, but those that docs/PYTHON.md lists as C++ only."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import tessera
from conftest import ROOT

PAGE = (ROOT / "docs" / "PYTHON.md").read_text()
# Keywords that no struct has, beside ctx: what a new output is like, and what C++ passes beside the struct.
OURS = {
    "top_k": {"k"}, "logprobs": {"top"}, "convert": {"dtype"}, "quantize": {"dense"},
    "ring_attention": {"ranks"}, "ring_attention_backward": {"ranks"},
}
# Fields that C++ refuses as well.
REFUSED = {
    "rms_norm": {"bias"}, "append_attention": {"k_offsets"},
    "attention_backward": {"pages", "rope_on_read", "k_scales", "v_scales"},
}
# Structs whose names do not say what has their fields here.
NAMED = {
    "NormArgs": ("layer_norm", "rms_norm"), "QuantizeOptions": ("quantize",), "DrawOptions": ("draw_options",),
    "Penalties": ("penalty_options",), "PageTable": ("PageTable",), "Rope": ("Rope",), "Dropout": ("Dropout",),
    "ContextOptions": ("Context",),
    "DecodeLayersArgs": (), "ForwardArgs": (),  # C++ only: what a model calls, and what calls a model
}


def without_comments_and_bodies(text: str) -> str:
    text = re.sub(r"//.*", "", text)
    text = re.sub(r"\benum class [^;]*;", "", text)
    text = re.sub(r"[\w:]+ \w+\([^()]*\) const \{[^{}]*\}", "", text)  # member functions
    return re.sub(r"\{[^{}]*\}", "", re.sub(r"<[^<>]*>", "", text))


def read_structs() -> dict[str, list[tuple[str, str]]]:
    """The fields of each struct of the public headers, as (type, name)."""
    structs = {}
    for header in sorted((ROOT / "include" / "tessera").glob("*.h")):
        for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", header.read_text(), re.MULTILINE | re.DOTALL):
            fields = structs[name] = []
            for statement in without_comments_and_bodies(body).split(";")[:-1]:
                first, *more = (part.split("=")[0].split() for part in statement.split(","))
                fields += [(" ".join(first[:-1]), part[-1]) for part in (first, *more)]
    return structs


STRUCTS = read_structs()


def fields_of(struct: str) -> set[str]:
    """Names of its fields; in place of another op's struct, those of that."""
    each = [fields_of(kind) if kind in STRUCTS and kind.endswith("Args") else {name} for kind, name in STRUCTS[struct]]
    return set().union(*each)


def functions_of(struct: str) -> tuple[str, ...]:
    op = struct.removesuffix("Args")
    return NAMED.get(struct, (re.sub(r"(?<=[a-z])(?=[A-Z])", "_", op).lower(),))


def read_keywords() -> dict[str, set[str]]:
    """The arguments of each function of the extension, and of what makes each class, from its stub."""
    keywords = {}
    for node in ast.parse(STUB).body:
        for function in [node, *getattr(node, "body", [])]:
            if isinstance(function, ast.FunctionDef) and (function is node or function.name == "__init__"):
                names = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
                keywords[node.name] = names - {"self"}
    return keywords


STUB = (Path(tessera.__file__).parent / "_native.pyi").read_text()
KEYWORDS = read_keywords()
BOUND = [(s, f) for s in STRUCTS if s.endswith("Args") or s in NAMED for f in functions_of(s)]


def read_cpp_only() -> dict[str, set[str]]:
    """The table of the page."""
    table = re.search(r"^\| function \| C\+\+ only \|.*\n\|.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)[1]
    listed = {}
    for row in table.splitlines():
        functions, fields = (re.findall(r"`(\w+)`", cell) for cell in row.split("|")[1:3])
        for function in functions:
            listed[function] = listed.get(function, set()) | set(fields)
    return listed


CPP_ONLY = read_cpp_only()


def test_an_llm_has_the_keywords_of_the_engine():
    """Written out, so that a checker of types and an editor know them, and with the same defaults."""
    engine = next(
        node for node in ast.walk(ast.parse(STUB))
        if isinstance(node, ast.ClassDef) and node.name == "Engine"
    )
    init = next(node for node in engine.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    defaults = {
        argument.arg: ast.literal_eval(default)
        for argument, default in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True)
    }
    ours = inspect.signature(tessera.LLM).parameters
    assert len(defaults) >= 10 and {name: ours[name].default for name in defaults} == defaults


def test_the_headers_are_read():
    assert fields_of("PageTable") == {"table", "lengths", "holes"} and fields_of("Rope") == {"inv_freq", "style"}
    assert {"k", "v", "scale", "softcap", "k_scales", "fixed_splits", "d_k"} <= fields_of("AttentionBackwardArgs")
    assert {"residuals", "eps", "fixed_rows"} <= fields_of("NormArgs")
    assert {"graphs", "memory", "share_threads_with"} <= fields_of("ContextOptions")
    assert fields_of("SampleRowsArgs") == {"logits", "rows", "options", "ids", "kind"}
    assert len(BOUND) >= 30 and CPP_ONLY.keys() <= {function for _, function in BOUND}


@pytest.mark.parametrize(("struct", "function"), BOUND)
def test_every_field_is_a_keyword_or_listed_as_cpp_only(struct, function):
    fields, keywords = fields_of(struct), KEYWORDS[function]
    assert fields - keywords == CPP_ONLY.get(function, set()) | REFUSED.get(function, set())
    assert keywords - fields - {"ctx"} == OURS.get(function, set())
