"""The examples run, and say what they promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT

EXAMPLES = ROOT / "examples" / "python"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    # One thread for torch, as in the tests.
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_stream_forever():
    assert "400 tokens" in run("stream_forever.py", "--tokens", "400")


def test_quantize_a_linear():
    lines = run("quantize_a_linear.py", "--in-features", "256", "--out-features", "512").splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["f32", "nvfp4", "mxfp4", "nf4", "int4", "int8", "fp8"]


def test_train_tiny():
    text = run("train_tiny.py")
    dense, packed = (float(x) for x in re.search(r"dense loss ([\d.]+), nvfp4 loss ([\d.]+)", text).groups())
    assert dense < 1.0 and packed < dense + 0.3


def test_train_attention_follows_torch():
    text = run("train_attention.py", "--device", "cpu", "--steps", "5")
    assert float(re.search(r"at most ([\d.]+) apart", text).group(1)) < 1e-3
    assert "the same seed gives the same gradients, another one others" in text


def test_train_attention_on_a_gpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    text = run("train_attention.py", "--device", "cuda", "--times", "2048", "--long", "65536")
    mine, peer = (float(x) for x in re.search(r"steps: ([\d.]+), PyTorch's ([\d.]+)", text).groups())
    assert mine < 1.5 * peer + 0.05
    assert "the same seed gives the same gradients, another one others" in text
    assert text.count("gradients finite") == 2


def test_patch_transformers():
    text = run("patch_transformers.py")
    assert text.count("ok  ") == 5 and "FAIL" not in text and "300 tokens with a cache of 64" in text


def test_the_notebook_runs_from_top_to_bottom(artefacts: Path):
    nbformat = pytest.importorskip("nbformat")
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / "formats_and_streams.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    nbformat.write(notebook, artefacts / "formats_and_streams.ipynb")
    outputs = [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 2
