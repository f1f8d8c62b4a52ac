"""What the options of `tessera serve` promise: keys, logs, origins, names."""
import json
import os
import pathlib
import re
import socket
import subprocess
import time
import urllib.parse

import openai
import pytest
from served import post

SECRET = "a-secret-of-tests"
ASKED = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}


def logged(server, words: str, times: int = 1) -> str:
    """The log, once it has the words: a line is written behind the answer that it tells of."""
    deadline = time.monotonic() + 10
    while (text := server.log.read_text()).count(words) < times and time.monotonic() < deadline:
        time.sleep(0.01)
    assert text.count(words) >= times, text
    return text


@pytest.mark.parametrize("way", ["file", "variable"])
def test_a_key_from_a_file_or_a_variable(start, tmp_path, monkeypatch, way):
    if way == "file":
        (tmp_path / "key").write_text(SECRET + "\n")
        server = start("key-file", "--api-key-file", str(tmp_path / "key"))
    else:
        monkeypatch.setenv("TESSERA_API_KEY", SECRET)
        server = start("key-variable")
    assert server.request("POST", "/v1/completions", ASKED)[0] == 401
    assert server.request("GET", "/metrics")[0] == 401
    assert server.request("GET", "/health")[0] == 200, "a load balancer has no key"
    assert server.request("GET", "/")[0] == server.request("GET", "/openapi.json")[0] == 200, "nor has a browser at first"
    assert server.request("GET", "/v1/models")[0] == server.request("POST", "/tokenize", {"content": "a"})[0] == 401
    assert server.request("GET", "/metrics", headers={"Authorization": f"Bearer {SECRET}"})[0] == 200
    assert server.request("POST", "/v1/completions", ASKED, {"Authorization": f"Bearer {SECRET}"})[0] == 200
    assert server.request("POST", "/v1/completions", ASKED, {"Authorization": f"Bearer {SECRET}x"})[0] == 401
    assert SECRET not in server.log.read_text()


def test_lines_of_json_without_prompts(start):
    server = start("log-json", "--log-json", "--alias", "a-name")
    assert json.loads(server.get("/v1/models"))["data"][0]["id"] == "a-name"
    assert server.request("POST", "/v1/completions", ASKED)[0] == 200
    assert server.request("POST", "/v1/completions", {"n": -1})[0] == 400
    text = logged(server, "/v1/completions\"", 2)
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    done, refused = (line for line in lines if line["path"] == "/v1/completions")
    assert done["status"] == 200 and done["generated_tokens"] == 4 and done["prompt_tokens"] > 0
    assert refused["status"] == 400
    assert "Once upon" not in server.log.read_text()


def test_a_name_with_any_characters(start):
    """Clients escape it in the path."""
    name = "Org/a model \u00e9 100%"
    server = start("alias", "--alias", name)
    for path in (urllib.parse.quote(name, safe=""), urllib.parse.quote(name), urllib.parse.quote(name).replace("%C3%A9", "%c3%a9")):
        assert json.loads(server.get(f"/v1/models/{path}"))["id"] == name
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        assert client.models.retrieve(name).id == name
        assert client.completions.create(model=name, prompt="Once", max_tokens=1).model == name
    for path in ("Org/a%20model%20%C3%A9%20100", "%", "%zz", "%00", urllib.parse.quote(urllib.parse.quote(name))):
        status, _, body = server.request("GET", f"/v1/models/{path}")
        assert status == 404 and json.loads(body)["error"]["code"] == "model_not_found"


# A time, the client, the method, the path, the status and how long it took.
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ 127\.0\.0\.1 (\S+) (\S+) (\d{3}) \d+\.\d ms( .*)?")


def test_one_line_a_request_whatever_is_in_it(start):
    """Neither the words of a prompt nor a path write lines of their own, or control a terminal."""
    server = start("log-text", "--log-prompts")
    begin = len(server.log.read_text())
    spread = json.dumps(ASKED | {"prompt": "Once\nupon\u2028a"}, indent=2).encode()
    raw = '{"prompt": "red \x9b31m and \x7f", "max_tokens": 1}'.encode()
    requests = [
        (post("/v1/completions", spread), "POST", "/v1/completions", "200"),
        (post("/v1/completions", raw), "POST", "/v1/completions", "200"),
        (b"GET /%0A%1b[31m HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "/%0A%1b[31m", "404"),
        (b"GET /\x9b31m\xc2\x9b HTTP/1.1\r\nHost: a\r\n\r\n", "GET", r"/\x9b31m\xc2\x9b", "404"),
        (b"GET /?\xff HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "/", "200"),
        (b"GET /\x1b[31m HTTP/1.1\r\nHost: a\r\n\r\n", "-", "-", "400"),
    ]
    for data, *_ in requests:
        server.exchange(data)
    lines = logged(server, " ms", len(requests))[begin:].splitlines()
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found) and [one.groups()[:3] for one in found] == [tuple(wanted) for _, *wanted in requests], lines
    assert all(character == "\n" or character.isprintable() for character in server.log.read_text()[begin:])
    assert re.search(r"ms prompt \d generated 4 first \d+\.\d ms cmpl-\w+ \{\\x0a  ", lines[0]) and r"Once\nupon\u2028" in lines[0]
    assert r"red \xc2\x9b31m and \x7f" in lines[1]


def test_quiet_logs_no_request(start):
    server = start("quiet", "--quiet")
    begin = server.log.read_text()
    assert server.request("POST", "/v1/completions", ASKED)[0] == 200 and server.request("GET", "/nothing")[0] == 404
    server.stop()
    assert server.log.read_text() == begin


def test_prompts_are_logged_if_asked_for(start):
    server = start("log-prompts", "--log-prompts")
    server.request("POST", "/v1/completions", ASKED)
    logged(server, "Once upon")


ORIGIN = "https://example.org"


@pytest.fixture(scope="module")
def cors(start):
    return start("cors", "--cors", ORIGIN)


def test_pages_of_another_origin(cors, server):
    status, headers, _ = cors.request("OPTIONS", "/v1/completions", headers={"Origin": ORIGIN})
    assert status == 204 and headers["Access-Control-Allow-Origin"] == ORIGIN
    assert "authorization" in headers["Access-Control-Allow-Headers"]
    for method in ("GET", "OPTIONS"):
        assert "Access-Control-Allow-Origin" not in cors.request(method, "/health", headers={"Origin": "https://else.where"})[1]
    assert "Access-Control-Allow-Origin" not in server.request("GET", "/health", headers={"Origin": ORIGIN})[1]


# What the official client for browsers sends.
STAINLESS = "authorization,content-type,x-stainless-arch,x-stainless-lang,x-stainless-os,x-stainless-package-version,x-stainless-retry-count,x-stainless-runtime"


@pytest.mark.parametrize(
    ("asked", "is_allowed"),
    [(STAINLESS, True), ("X-A , x-b", True), ("x" * 1024, True), ("x" * 1025, False), ("a b", False), ("x-a, \"b\"", False), ("x-\u00e9", False), ("", False)],
    ids=["the client's", "spaces", "long", "too long", "no token", "quotes", "not ASCII", "none"],
)
def test_a_page_of_another_origin_may_send_the_headers_that_it_asks_for(cors, asked, is_allowed):
    sent = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asked.encode()}
    status, headers, _ = cors.request("OPTIONS", "/v1/completions", headers=sent)
    assert status == 204
    assert headers["Access-Control-Allow-Headers"] == (asked if is_allowed else "authorization, content-type")
    assert "Access-Control-Request-Headers" in headers["Vary"], "what is stored for one page is not for another"


def test_a_server_that_others_reach_without_a_key_warns(start):
    assert "warning: other machines can reach" in start("open", "--host", "0.0.0.0").log.read_text()
    assert "warning" not in start("open-with-key", "--host", "0.0.0.0", "--api-key", SECRET).log.read_text()


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_an_address_of_ipv6(start):
    server = start("ipv6", host="::1")
    text = server.log.read_text()
    assert f"http://[::1]:{server.port}" in text and "warning" not in text
    assert server.request("POST", "/v1/completions", ASKED)[0] == 200
    assert " ::1 POST " in logged(server, "/v1/completions")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=10)


@pytest.mark.parametrize("flags", [["--api-key", "a", "--api-key-file", "b"], ["--port", "65536"], ["--host", ""], ["--max-queue", "0"]])
def test_wrong_options_are_said_in_one_line(program, flags):
    done = subprocess.run([program, "serve", *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and flags[0] in done.stderr


@pytest.mark.parametrize(
    ("flags", "variable", "said"),
    [
        ([], "", "TESSERA_API_KEY is set and holds no key"),  # it used to be taken for none
        ([], "a\nb", "the key has a control character"),
        (["--api-key", "a\tb"], None, "the key has a control character"),
        (["--cors", "http://a\r\nX: y"], None, "--cors has a control character"),  # it used to become a header
    ],
)
def test_keys_and_origins_that_no_header_holds_are_refused(program, flags, variable, said):
    environment = {**os.environ, **({} if variable is None else {"TESSERA_API_KEY": variable})}
    done = subprocess.run([program, "serve", "--port", "0", *flags], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and said in done.stderr


def test_a_full_queue_says_when_to_try_again(start):
    """One answer runs, one waits, the next is refused."""
    server = start("queue", "--max-sequences", "1", "--max-queue", "1")
    status, _, answer = server.request("POST", "/v1/completions", ASKED | {"n": 2})
    assert status == 400 and json.loads(answer)["error"]["param"] == "n", "two answers never run here at once"
    endless = {"prompt": "Once", "stream": True, "max_tokens": 1000000, "ignore_eos": True, "attention_sinks": 4, "window": 60}
    held = []
    for waiting in (0, 1):
        held.append(server.connect())
        held[-1].sendall(post("/v1/completions", endless))
        deadline = time.monotonic() + 60
        while server.metrics()["tessera_sequences_running"] + server.metrics()["tessera_sequences_waiting"] < waiting + 1:
            assert time.monotonic() < deadline
    status, headers, answer = server.request("POST", "/v1/completions", ASKED)
    assert status == 429 and int(headers["Retry-After"]) >= 1
    assert json.loads(answer)["error"]["type"] == "rate_limit_error"
    for connection in held:
        connection.close()
    server.wait_until_idle()


@pytest.mark.parametrize("open_to_others", [False, True])
def test_files_that_others_can_write_are_copied(start, tiny_folder, open_to_others):
    """A mapped file that somebody writes to may end the process."""
    weights = tiny_folder / "model.safetensors"
    weights.chmod(0o666 if open_to_others else 0o644)
    server = start(f"files-{open_to_others}", "--model", str(tiny_folder))
    maps = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
    assert (str(weights) in maps) != open_to_others
    before = server.greedy()
    if open_to_others:
        weights.write_bytes(b"")
    assert server.greedy() == before
