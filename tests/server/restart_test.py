"""The end of the process: killed and started again, and asked to end."""
import json
import signal
import threading
import time

import pytest
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
