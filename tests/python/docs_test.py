"""What help() says: every public function and class has an example, and the examples run. Those of the page as well."""

import doctest
import types

import numpy
import pytest
import torch

import tessera
import tessera.torch
import tessera.transformers
from conftest import ROOT
from transformers_test import make, prompt

PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (tessera, tessera.torch, tessera.transformers)
    for name in module.__all__
    if name != "__version__" and not isinstance(getattr(module, name), types.ModuleType)
}
NOT_RUN = {"tessera.quantize_checkpoint"}  # writes a folder; llm_test.py has a tiny one packed


def examples(name: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(PUBLIC[name].__doc__ or "")


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name):
    assert examples(name), f"{name} needs a docstring with shapes and a line that begins with >>>"


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - NOT_RUN))
def test_examples_run(name):
    """They may take the libraries for granted and, below tessera.transformers, a small patched model and a prompt."""
    torch.manual_seed(0)
    known = {"numpy": numpy, "torch": torch, "tessera": tessera}
    if name.startswith("tessera.transformers."):
        known |= {"model": make("llama"), "ids": prompt()}
        if not name.endswith(".patch"):
            tessera.transformers.patch(known["model"], streaming=(4, 28))
    test = doctest.DocTest(examples(name), known, name, None, None, None)
    said: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert result.failed == 0, "".join(said)


def test_the_pages_pytorch_example_runs_and_compiles():
    page = (ROOT / "docs" / "PYTHON.md").read_text()
    code = page.split("## PyTorch", 1)[1].split("```python", 1)[1].split("```", 1)[0]
    linear, q = torch.nn.Linear(64, 32), torch.randn(1, 5, 2, 64)
    model = torch.nn.ModuleDict({"output": torch.nn.Sequential(linear), "head": torch.nn.Linear(64, 8)})
    model["output"].output = torch.nn.Linear(64, 64)
    known = {"tessera": tessera, "linear": linear, "model": model, "q": q, "k": q, "v": q}
    exec(code, known)
    attend = lambda q: known["tt"].attention(q, q, q, known["window"])  # noqa: E731
    for function, x in ((attend, q), (known["layer"], torch.randn(3, 64)), (known["block"], torch.randn(1, 5, 512))):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x), function(x))
    dropped = torch.compile(
        lambda q: known["tt"].attention(q, q, q, known["window"], dropout_p=0.1), fullgraph=True, backend="aot_eager"
    )
    assert dropped(q).shape == known["y"].shape
