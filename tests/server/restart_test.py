"""The end of the process: killed and started again, and asked to end."""
import contextlib
import http.client
import json
import math
import pathlib
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest
from conftest import GOLDEN
from served import Server, post, read_all, replies

LONG = {"prompt": "Once upon a time", "stream": True, "max_tokens": 1000000, "ignore_eos": True, "attention_sinks": 4, "window": 60}


def open_stream(server: Server):
    connection = server.connect(timeout=60)
    connection.sendall(post("/v1/completions", LONG))
    assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    return connection


def test_killed_in_the_middle_and_started_again_on_the_same_port(start):
    first = start("killed")
    expected = first.greedy()
    streams = [open_stream(first) for _ in range(8)]
    first.kill()
    for stream in streams:
        read_all(stream)  # ends, and does not hang
        stream.close()
    second = start("restarted", port=first.port)
    assert second.port == first.port
    assert second.greedy() == expected


def test_a_port_that_is_taken_is_said_in_one_line(start, server):
    with pytest.raises(RuntimeError, match=str(server.port)):
        start("taken", port=server.port)


def large_model(folder: pathlib.Path) -> pathlib.Path:
    """Weights of zeros, which take a second or more to be packed. The file has no content on the disk."""
    hidden, layers, vocab = 512, 24, 320
    config = json.loads((GOLDEN / "config.json").read_text())
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": hidden, "intermediate_size": 4 * hidden, "num_attention_heads": 8, "num_hidden_layers": layers}))
    shapes = {"gpt_neox.embed_in.weight": [vocab, hidden], "embed_out.weight": [vocab, hidden], "gpt_neox.final_layer_norm.weight": [hidden], "gpt_neox.final_layer_norm.bias": [hidden]}
    for layer in range(layers):
        parts = {"attention.query_key_value": [3 * hidden, hidden], "attention.dense": [hidden, hidden], "mlp.dense_h_to_4h": [4 * hidden, hidden],
                 "mlp.dense_4h_to_h": [hidden, 4 * hidden], "input_layernorm": [hidden], "post_attention_layernorm": [hidden]}
        for name, shape in parts.items():
            shapes |= {f"gpt_neox.layers.{layer}.{name}.weight": shape, f"gpt_neox.layers.{layer}.{name}.bias": shape[:1]}
    header, at = {}, 0
    for name, shape in shapes.items():
        end = at + 2 * math.prod(shape)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    return folder


def health(port: int) -> dict | None:
    """None: nobody listens yet."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/health")
        return json.loads(connection.getresponse().read())
    except ConnectionRefusedError:
        return None
    finally:
        connection.close()


def test_sigterm_while_the_model_is_being_loaded(program, tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    model = large_model(tmp_path / "large")
    command = [program, "serve", "--port", str(port), "--device", "cpu", "--model", str(model), "--weights", "nf4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            deadline = time.monotonic() + 60
            while (said := health(port)) is None:
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.01)
            assert said["status"] == "loading" and said["progress"] < 1
            process.send_signal(signal.SIGTERM)
            text, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, text
    assert "tessera serves" not in text and "rror" not in text, "it has not gone on"


def test_sigterm_lets_running_answers_finish(start):
    server = start("drained", "--drain-seconds", "60")
    asked = {"prompt": "Once upon a time", "max_tokens": 200, "temperature": 0, "ignore_eos": True}
    with server.connect(timeout=60) as connection:
        connection.sendall(post("/v1/completions", asked, "Connection: close"))
        deadline = time.monotonic() + 30
        while server.metrics()["tessera_generated_tokens_total"] == 0 and time.monotonic() < deadline:
            pass
        server.process.send_signal(signal.SIGTERM)
        (reply,) = replies(read_all(connection))
    assert reply.status == 200
    assert json.loads(reply.body)["usage"]["completion_tokens"] == 200
    assert server.process.wait(60) == 0


def keep_reading(stream, came: bytearray) -> None:
    while part := stream.recv(65536):
        came += part


def test_a_drain_refuses_new_connections_and_goes_on_with_open_ones(start):
    server = start("draining", "--drain-seconds", "600", "--request-seconds", "600")
    health, deadline = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n", time.monotonic() + 120
    with contextlib.ExitStack() as held:
        stream, idle, asks, asks_health = [held.enter_context(c) for c in (open_stream(server), *(server.connect(timeout=60) for _ in range(3)))]
        came = bytearray()
        reader = threading.Thread(target=keep_reading, args=(stream, came))
        reader.start()
        idle.sendall(health)
        assert b'"ok"' in idle.recv(4096)
        for connection, request in ((asks, post("/v1/completions", LONG)), (asks_health, health)):
            connection.sendall(request[:10])  # the rest comes later
        while server.metrics()["tessera_connections"] < 5:
            assert time.monotonic() < deadline
        server.process.send_signal(signal.SIGTERM)
        while True:
            assert time.monotonic() < deadline, "new connections are still accepted"
            try:
                server.connect().close()
            except ConnectionRefusedError:
                break
            except OSError:
                pass  # it waited to be accepted when the listener was closed
        assert idle.recv(4096) == b"", "closed"
        asks.sendall(post("/v1/completions", LONG)[10:])
        asks_health.sendall(health[10:])
        (refused,), (draining,) = replies(read_all(asks)), replies(read_all(asks_health))
        assert refused.status == 503 and b"shutting down" in refused.body
        assert draining.status == 503 and json.loads(draining.body) == {"status": "draining"}
        before = len(came)
        while len(came) < before + 10000:
            assert time.monotonic() < deadline, "the answer does not go on"
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        reader.join(60)
    assert b"shutting down" in came and b"data: [DONE]" in came and came.endswith(b"\r\n0\r\n\r\n")


def test_sigterm_does_not_wait_for_streams_without_end(start):
    server = start("not-drained", "--drain-seconds", "1")
    stream = open_stream(server)
    reader = threading.Thread(target=read_all, args=(stream,))
    reader.start()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    reader.join(60)
    assert not reader.is_alive()
    stream.close()
