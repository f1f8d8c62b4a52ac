"""The package as it is installed: quick to import, without torch, in an environment of its own, with its program."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import tessera

PACKAGE = Path(tessera.__file__).parent


def run(*command, **options) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout


def test_the_import_takes_less_than_a_fifth_of_a_second_and_no_torch():
    """On the clock. A busy machine takes longer, so that the quickest of some imports counts."""
    code = (
        "import sys, time; start = time.perf_counter(); import tessera; took = time.perf_counter() - start;"
        "print(took, 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    took = []
    while not took or (min(took) >= 0.2 and len(took) < 20):
        seconds, torch_came, numpy_came = run(sys.executable, "-c", code).split()
        assert (torch_came, numpy_came) == ("False", "False")
        took.append(float(seconds))
    assert min(took) < 0.2, took


def test_a_star_import_takes_neither_torch_nor_the_callers_name_for_it():
    code = "import sys\ntorch = 1\nfrom tessera import *\nprint(torch, LLM.__name__, 'torch' in sys.modules)"
    assert run(sys.executable, "-c", code).split() == ["1", "LLM", "False"]


TYPED = """
import numpy as np
import tessera
from tessera import LLM, Mask, RequestOutput, SamplingParams, StreamPiece

q = np.ones((1, 5, 8, 64), np.float32)
out: np.ndarray = tessera.attention(q=q, k=q, v=q, mask=Mask.causal(), dropout=None)
weight: tessera.Weight = tessera.prepare(tessera.quantize(q[0, 0], format="nvfp4"))
y: np.ndarray = tessera.linear(x=q, weight=weight, bias=None, activation="gelu")
tensor = tessera.Tensor([2, 3], dtype="bf16")
tessera.convert(x=tensor, dtype="f32")
llm = LLM(streaming=(4, 1020), max_sequences=4, keep_dense="embed_out", weights=None)
results: list[RequestOutput] = llm.generate(["a", "b"], SamplingParams(stop=".", logit_bias={3: 1.0}))
ids: list[int] = results[0].token_ids
pieces: list[StreamPiece] = list(llm.stream("a"))
text: str = tessera.load_tokenizer().decode(ids)
ppl: float = tessera.perplexity(llm, text, streaming=(4, 60)).ppl


async def read() -> None:
    async for piece in llm.astream("a"):
        piece.text.upper()


try:
    tessera.default_context("cuda")
except tessera.Error as error:
    code: str = error.code
    error.reason  # wrong: attr-defined
tessera.softmax(x="words")  # wrong: arg-type
tessera.attention(q=q, k=q, v=q, mask="causal")  # wrong: arg-type
tessera.rms_norm(x=q)  # wrong: call-arg
tessera.softmax(x=q, sclae=2.0)  # wrong: call-arg
LLM(max_seqs=3)  # wrong: call-arg
SamplingParams(top_k="5")  # wrong: arg-type
tessera.no_such_op  # wrong: attr-defined
"""


def test_a_typed_program_is_checked(tmp_path):
    """mypy finds nothing in the stub, and of this program the marked lines alone."""
    (tmp_path / "program.py").write_text(TYPED)
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-torch.*,transformers.*]\nfollow_imports = skip\n")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--no-incremental"]
    strict = [*command, "--strict", "program.py"]
    told = subprocess.run(strict, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    found = {int(line): kind for line, kind in re.findall(r"^program.py:(\d+): error: .*\[([\w-]+)\]$", told, re.M)}
    lines = enumerate(TYPED.splitlines(), start=1)
    assert found == {number: line.split("wrong: ")[1] for number, line in lines if "# wrong: " in line}, told
    shutil.copy(PACKAGE / "_native.pyi", tmp_path / "stub.pyi")  # mypy is silent about installed packages
    run(*command, "stub.pyi", cwd=tmp_path)


def test_python_m_tessera_is_the_program():
    told = subprocess.run([sys.executable, "-m", "tessera", "--version"], capture_output=True, text=True, check=True)
    assert tessera.__version__ in told.stdout
    assert told.stderr == ""  # Python warns if the package imports its own __main__
    failed = subprocess.run([sys.executable, "-m", "tessera", "nonsense"], capture_output=True, check=False)
    assert failed.returncode == 2


def test_the_stub_names_the_functions_and_their_arrays():
    stub = (PACKAGE / "_native.pyi").read_text()
    for name in ("attention", "linear", "layer_norm", "quantize", "append_attention", "ring_attention"):
        assert f"def {name}(" in stub
    assert "class Array(Protocol)" in stub
    assert re.search(r"def softmax\(\*, x: Array, scale: float.*, out: Array \| None = None, .*\) -> Any:", stub)
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.skipif("TESSERA_WHEEL" not in os.environ, reason="run.sh makes a wheel; this is another way to run")
def test_the_wheel_works_in_another_environment(tmp_path):
    wheel = os.environ["TESSERA_WHEEL"]
    venv.create(tmp_path / "other", with_pip=False)
    python = tmp_path / "other" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet", wheel)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    text = run(python, "-c", (
        "import tessera; p = tessera.SamplingParams(temperature=0, max_tokens=5);"
        "print(tessera.LLM(device='cpu').generate('Once upon a time', p)[0].text)"
    ), cwd=tmp_path, env=clean)
    told = run(tmp_path / "other/bin/tessera", "generate", "Once upon a time", "--greedy", "--max-tokens", "5",
               "--device", "cpu", cwd=tmp_path, env=clean)
    assert text.strip() and text.strip() in told
    assert importlib.metadata.version("tessera") == tessera.__version__
