"""Options and the servers that tests share."""
import pathlib

import pytest
from served import Server


def pytest_addoption(parser):
    parser.addoption("--program", default="../../build/bin/tessera", help="the tessera program")
    parser.addoption("--artefacts", default="../../build/server-tests", help="folder for logs and screenshots")
    parser.addoption("--sockets-only", action="store_true", help="only tests of the sockets")
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


@pytest.fixture(scope="session")
def start(program, artefacts):
    """start(name, *arguments): a server of its own. All are ended after the tests, and must end well."""
    servers = []

    def begin(name: str, *arguments: str, **options) -> Server:
        server = Server(program, artefacts / f"{name}.log", *arguments, **options)
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
