"""What the tests share: random arrays, and which devices there are."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

if "TESSERA_TEST_WITHOUT_TABLE" in os.environ:  # before tessera looks for it
    del torch.Tensor.__dlpack_c_exchange_api__

import tessera

ROOT = Path(__file__).resolve().parents[2]
GPUS = [d.device for d in tessera.devices() if d.device.startswith("cuda") and d.usable]

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


settings.register_profile("same", derandomize=True, database=None)
settings.load_profile("same")
torch.set_num_threads(1)  # small tensors: threads that wait for each other cost more than they gain


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "gpu" in item.keywords and not GPUS:
            item.add_marker(pytest.mark.skip(reason=f"no GPU: {tessera.cuda_status()}"))


def resident_bytes() -> int:
    """The memory that this process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def f32(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


@pytest.fixture
def artefacts() -> Path:
    folder = Path(os.environ.get("TESSERA_ARTEFACTS", ROOT / "build" / "python-tests"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def llm() -> tessera.LLM:
    return tessera.LLM(device="cpu", max_sequences=8)
