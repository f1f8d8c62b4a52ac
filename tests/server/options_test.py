"""What the options of `tessera serve` promise: keys, logs, origins, names."""
import json
import pathlib
import subprocess
import time

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


def test_prompts_are_logged_if_asked_for(start):
    server = start("log-prompts", "--log-prompts")
    server.request("POST", "/v1/completions", ASKED)
    logged(server, "Once upon")


def test_pages_of_another_origin(start, server):
    origin = "https://example.org"
    open_to = start("cors", "--cors", origin)
    status, headers, _ = open_to.request("OPTIONS", "/v1/completions", headers={"Origin": origin})
    assert status == 204 and headers["Access-Control-Allow-Origin"] == origin
    assert "authorization" in headers["Access-Control-Allow-Headers"]
    assert "Access-Control-Allow-Origin" not in open_to.request("GET", "/health", headers={"Origin": "https://else.where"})[1]
    assert "Access-Control-Allow-Origin" not in server.request("GET", "/health", headers={"Origin": origin})[1]


def test_a_server_that_others_reach_without_a_key_warns(start):
    assert "warning: other machines can reach" in start("open", "--host", "0.0.0.0").log.read_text()
    assert "warning" not in start("open-with-key", "--host", "0.0.0.0", "--api-key", SECRET).log.read_text()


@pytest.mark.parametrize("flags", [["--api-key", "a", "--api-key-file", "b"], ["--port", "65536"], ["--host", ""], ["--max-queue", "0"]])
def test_wrong_options_are_said_in_one_line(program, flags):
    done = subprocess.run([program, "serve", *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and flags[0] in done.stderr


def test_a_full_queue_says_when_to_try_again(start):
    """One answer runs, one waits, the next is refused."""
    server = start("queue", "--max-sequences", "1", "--max-queue", "1")
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
