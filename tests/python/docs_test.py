"""What help() says: every public function and class has an example, and the examples run."""

import doctest
import types

import numpy
import pytest
import torch

import tessera
import tessera.torch
import tessera.transformers
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
