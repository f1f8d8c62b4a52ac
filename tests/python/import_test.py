"""The package as it is installed: quick to import, without torch, in an environment of its own, with its program."""

import importlib.metadata
import os
import re
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
