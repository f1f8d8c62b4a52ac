"""Options and the servers that tests share."""
import json
import pathlib
import shutil

import pytest
from served import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/data/goldens/neox-parallel"
TEMPLATE = "{{ bos_token }}{% if style %}style: {{ style }}\n{% endif %}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"


def pytest_addoption(parser):
    parser.addoption("--program", default="../../build/bin/tessera", help="the tessera program")
    parser.addoption("--artefacts", default="../../build/server-tests", help="folder for logs and screenshots")
    parser.addoption("--sockets-only", action="store_true", help="only tests of the sockets")
    parser.addoption("--tiny", action="store_true", help="a model of a few thousand weights, for builds with a sanitizer")
    parser.addoption("--malformed", type=int, default=10000, help="number of malformed requests")
    parser.addoption("--droppers", type=int, default=1000, help="number of clients that leave")
    parser.addoption("--long", type=int, default=0, help="number of requests of the run that watches the memory; 0: no such run")


def pytest_ignore_collect(collection_path, config):
    sockets = {"sockets_test.py", "malformed_test.py", "droppers_test.py", "restart_test.py"}
    if config.getoption("--sockets-only") and collection_path.suffix == ".py" and collection_path.name not in sockets | {"conftest.py"}:
        return True
    return None


@pytest.fixture(scope="session")
def program(request) -> str:
    return str(pathlib.Path(request.config.getoption("--program")).resolve())


@pytest.fixture(scope="session")
def artefacts(request) -> pathlib.Path:
    folder = pathlib.Path(request.config.getoption("--artefacts")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def tiny_model(folder: pathlib.Path) -> pathlib.Path:
    """A golden of 320 tokens, with a tokenizer of the 256 bytes and 64 words."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(GOLDEN, folder)
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    tokens = [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)] + [f"w{i}" for i in range(64)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": []}
    parts = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(parts))
    return folder


@pytest.fixture
def tiny_folder(tmp_path) -> pathlib.Path:
    """A tiny model that a test may change."""
    return tiny_model(tmp_path / "model")


@pytest.fixture(scope="session")
def chat_model(artefacts) -> pathlib.Path:
    """The bundled model with a chat template."""
    folder = artefacts / "stories-chat"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "models/stories", folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": TEMPLATE}))
    return folder


@pytest.fixture(scope="session")
def start(program, artefacts, request):
    """start(name, *arguments): a server of its own. All are ended after the tests, and must end well."""
    servers = []
    model = ["--model", str(tiny_model(artefacts / "tiny-model"))] if request.config.getoption("--tiny") else []

    def begin(name: str, *arguments: str, **options) -> Server:
        chosen = [] if "--model" in arguments else model
        server = Server(program, artefacts / f"{name}.log", *chosen, *arguments, **options)
        servers.append(server)
        return server

    yield begin
    ends = [(server.log.name, server.stop(), server.complaints()) for server in servers if server.process.returncode != -9]
    assert all(status == 0 and not text for _, status, text in ends), ends


@pytest.fixture(scope="session")
def server(start) -> Server:
    """The one that most tests share."""
    return start("shared")


@pytest.fixture(autouse=True)
def still_there(request):
    """Whatever a test does, the shared server survives it."""
    yield
    if "server" in request.fixturenames:
        server = request.getfixturevalue("server")
        assert server.is_alive(), server.log.read_text()[-4000:]
