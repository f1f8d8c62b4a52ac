"""What clients do to the sockets, on purpose or not: slow, half, wrong, too large, too many."""
import email.utils
import json
import socket
import statistics
import time

import pytest
from served import GREEDY, Reply, post, read_all, replies, reset

ERRORS = {400, 404, 405, 408, 411, 413, 414, 415, 417, 422, 429, 431, 501, 505}


def error_of(reply: Reply) -> str:
    return json.loads(reply.body)["error"]["message"]


def one(data: bytes) -> Reply:
    found = replies(data)
    assert len(found) == 1, found
    return found[0]


@pytest.fixture(scope="module")
def expected(server) -> str:
    return server.greedy()


def text_of(reply: Reply) -> str:
    assert reply.status == 200, reply
    return json.loads(reply.body)["choices"][0]["text"]


def test_pipelined_requests_are_answered_in_order(server, expected):
    asked = post("/v1/completions", GREEDY) + b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" + post("/v1/completions", GREEDY, "Connection: close")
    first, health, last = replies(server.exchange(asked))
    assert text_of(first) == text_of(last) == expected
    assert json.loads(health.body)["status"] == "ok"


@pytest.mark.parametrize("streams", [(False, False), (False, True), (True, True), (True, False)])
def test_a_connection_ends_with_the_last_answer_to_a_client_that_sends_no_more(server, expected, streams):
    """It had been waited for until the connection had idled for long enough."""
    asked = b"".join(post("/v1/completions", {**GREEDY, "stream": stream}) for stream in streams)
    began = time.monotonic()
    found = replies(server.exchange(asked))
    assert [reply.headers["content-type"] for reply in found] == ["text/event-stream" if stream else "application/json" for stream in streams]
    assert time.monotonic() - began < 20


def test_a_hundred_pipelined_requests(server):
    found = replies(server.exchange(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" * 100))
    assert [r.status for r in found] == [200] * 100


def test_a_chunked_body(server, expected):
    text = json.dumps(GREEDY).encode()
    chunks = b"".join(b"%x;note=1\r\n%s\r\n" % (len(text[i : i + 7]), text[i : i + 7]) for i in range(0, len(text), 7))
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    assert text_of(one(server.exchange(head + chunks + b"0\r\n\r\n"))) == expected


@pytest.mark.parametrize("chunks", [b"zz\r\nabc\r\n0\r\n\r\n", b"-5\r\nabc\r\n0\r\n\r\n", b"fffffffffffffffff\r\na\r\n0\r\n\r\n", b"5\r\nabcdefghij\r\n0\r\n\r\n"])
def test_bad_chunks_are_refused(server, chunks):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert one(server.exchange(head + chunks)).status in (400, 413)


@pytest.mark.parametrize("size", [65536, 5 << 20], ids=["many chunks", "one chunk"])
def test_a_chunked_body_that_is_too_large_is_refused(server, size):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n%s\r\n" % (size, b" " * size)
    reply = one(server.exchange(head + chunk * ((5 << 20) // size)))
    assert reply.status == 413 and "too large" in error_of(reply)


def test_bytes_that_come_one_by_one(server, expected):
    with server.connect() as connection:
        for byte in post("/v1/completions", GREEDY, "Connection: close"):
            connection.sendall(bytes([byte]))
        assert text_of(one(read_all(connection))) == expected


@pytest.mark.parametrize("length", ["-1", "1e3", "99999999999999999999999", "abc", "", "5, 6", "+5", "0x10"])
def test_wrong_lengths_are_refused(server, length):
    request = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{{}}".encode()
    reply = one(server.exchange(request))
    assert reply.status in (400, 413), reply


def test_two_ways_to_say_the_length_are_refused(server):
    """Two servers that read them differently see two different requests."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    for lengths in (b"Content-Length: 2\r\nContent-Length: 3\r\n", b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n"):
        assert one(server.exchange(head + lengths + b"\r\n{}")).status == 400


@pytest.mark.parametrize(("version", "coding", "status"), [("1.1", "gzip", 501), ("1.1", "gzip, chunked", 501), ("1.1", "identity", 501), ("1.0", "chunked", 400)])
def test_a_body_in_a_coding_that_is_not_known_is_no_second_request(server, version, coding, status):
    """What lies behind such a head must not be read as a request: a proxy in front may have taken it for the body."""
    head = f"POST /v1/completions HTTP/{version}\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: {coding}\r\n\r\n".encode()
    reply = one(server.exchange(head + b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"))
    assert reply.status == status and error_of(reply)
    assert version == "1.0" or reply.headers["connection"] == "close"


@pytest.mark.parametrize(("hosts", "version", "status"), [(0, "1.1", 400), (1, "1.1", 200), (2, "1.1", 400), (0, "1.0", 200)])
def test_a_request_has_one_host(server, hosts, version, status):
    lines = [f"GET /health HTTP/{version}", *["Host: a"] * hosts, "", ""]
    assert one(server.exchange("\r\n".join(lines).encode())).status == status


def test_a_whole_address_as_proxies_send_it(server):
    assert one(server.exchange(b"GET http://a.example/health?x HTTP/1.1\r\nHost: a.example\r\n\r\n")).status == 200


def test_empty_lines_between_requests(server, expected):
    """Some clients send one behind a body."""
    health = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
    found = replies(server.exchange(b"\r\n" + post("/v1/completions", GREEDY) + b"\r\n\r\n" + health + b"\r\n"))
    assert [reply.status for reply in found] == [200, 200] and text_of(found[0]) == expected
    with server.connect() as connection:
        for byte in b"\r\n\r\n" + health:
            connection.sendall(bytes([byte]))
        assert one(connection.recv(4096)).status == 200
    assert server.exchange(b"\r\n\r") == b""


def test_a_packed_body_is_refused(server):
    reply = one(server.exchange(post("/v1/completions", GREEDY, "Content-Encoding: gzip", "Connection: close")))
    assert reply.status == 415 and "gzip" in error_of(reply)


def test_answers_are_dated(server):
    for reply in replies(server.exchange(post("/v1/completions", GREEDY) + post("/v1/completions", {**GREEDY, "stream": True}))):
        seconds = email.utils.parsedate_to_datetime(reply.headers["date"]).timestamp()
        assert abs(seconds - time.time()) < 60


def test_a_body_shorter_than_it_says(server):
    data = server.exchange(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{")
    assert data == b"" or one(data).status in (400, 408)


def test_a_body_longer_than_it_says_is_another_request(server, expected):
    data = server.exchange(post("/v1/completions", GREEDY) + b"and more\r\n\r\n")
    first, second = replies(data)
    assert text_of(first) == expected
    assert second.status == 400


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(server):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000000000\r\n"
    with server.connect() as connection:
        connection.sendall(head + b"Expect: 100-continue\r\n\r\n")
        assert one(read_all(connection)).status == 413


def test_headers_of_a_megabyte_are_refused(server):
    reply = one(server.exchange(b"GET /health HTTP/1.1\r\nHost: a\r\nX-Large: " + b"a" * (1 << 20) + b"\r\n\r\n"))
    assert reply.status == 431
    reply = one(server.exchange(b"GET /health HTTP/1.1\r\nHost: a\r\n" + b"X-A: b\r\n" * 100000 + b"\r\n"))
    assert reply.status == 431
    reply = one(server.exchange(b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: a\r\n\r\n"))
    assert reply.status in (414, 431)


@pytest.mark.parametrize("cut", [1, 5, 20, 60, 100])
def test_half_requests_hold_nothing(server, cut):
    connections = [server.connect() for _ in range(20)]
    for i, connection in enumerate(connections):
        connection.sendall(post("/v1/completions", GREEDY)[:cut])
        reset(connection) if i % 2 else connection.close()
    server.wait_until_idle()


def test_a_client_that_closes_its_direction_still_gets_the_answer(server, expected):
    assert text_of(one(server.exchange(post("/v1/completions", GREEDY)))) == expected


def test_a_client_may_close_its_direction_while_the_answer_streams(server):
    with server.connect() as connection:
        connection.sendall(post("/v1/completions", {**GREEDY, "max_tokens": 64, "ignore_eos": True, "stream": True}))
        data = connection.recv(65536)
        connection.shutdown(socket.SHUT_WR)
        data += read_all(connection)
    assert b"data: [DONE]" in data


def test_a_slow_loris_is_cut_off_and_others_are_served(start):
    server = start("loris", "--request-seconds", "1", "--max-connections", "64")
    slow = [server.connect() for _ in range(40)]
    for connection in slow:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n")
    began, closed = time.monotonic(), set()
    text = server.greedy()
    while len(closed) < len(slow) and time.monotonic() < began + 60:
        for connection in slow:
            if connection in closed:
                continue
            try:
                connection.sendall(b"X-A: b\r\n")  # a header every now and then
                connection.settimeout(0.001)
                data = connection.recv(4096)
                if not data or one(data).status == 408:
                    closed.add(connection)
            except TimeoutError:
                pass
            except OSError:
                closed.add(connection)
        time.sleep(0.1)
    assert len(closed) == len(slow), f"{len(slow) - len(closed)} are still there"
    assert server.greedy() == text
    for connection in slow:
        connection.close()
    server.wait_until_idle()


def test_a_body_that_comes_slowly_gets_408(start):
    server = start("slow-body", "--request-seconds", "1")
    data = post("/v1/completions", GREEDY | {"stop": "x" * 200})
    head = data.index(b"\r\n\r\n") + 4
    with server.connect() as connection:
        connection.sendall(data[:head])
        connection.settimeout(0.1)
        answer, deadline = b"", time.monotonic() + 60
        for byte in data[head:-1]:  # a byte every now and then
            assert time.monotonic() < deadline, "it is not cut off"
            try:
                connection.sendall(bytes([byte]))
                answer = connection.recv(4096)
                break
            except TimeoutError:
                pass
            except OSError:
                break  # what it said can still be read
        connection.settimeout(30)
        reply = one(answer + read_all(connection))
    assert reply.status == 408 and "too long" in error_of(reply)
    assert server.request("GET", "/health")[0] == 200


def test_a_connection_that_idles_is_closed(start):
    server = start("idle", "--idle-seconds", "1", "--request-seconds", "60")
    with server.connect(timeout=60) as connection:
        began = time.monotonic()
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert one(connection.recv(4096)).status == 200
        assert connection.recv(4096) == b"", "closed without a word"
        assert time.monotonic() - began >= 1
    server.wait_until_idle()


@pytest.mark.parametrize("leave", [reset, socket.socket.close], ids=["reset", "closed"])
def test_a_client_that_leaves_while_its_answer_is_computed_is_noticed(server, leave):
    """At once, or by the second interim answer: about half a second. Busy machines and sanitizers take longer."""
    before = server.wait_until_idle()
    connection = server.connect()
    connection.sendall(post("/v1/completions", {"prompt": "Once", "max_tokens": 1000000, "ignore_eos": True, "attention_sinks": 4, "window": 60}))
    deadline = time.monotonic() + 60
    while server.metrics()["tessera_sequences_running"] == 0:
        assert time.monotonic() < deadline
    leave(connection)
    now = server.wait_until_idle(10)  # the answer itself would take far longer
    assert now["tessera_answers_cancelled_total"] == before["tessera_answers_cancelled_total"] + 1


def test_the_engine_ends_a_stream_within_a_step_of_its_reset(start, request):
    """With the step that runs when the reset comes, or the one that begins at that moment. A tiny model's steps are
    shorter than the reset's way to the engine."""
    most = 100 if request.config.getoption("--tiny") else 3
    server = start("reset", "--max-sequences", "16")
    # So many choices that a step takes milliseconds.
    asked = {"prompt": "Once", "stream": True, "logprobs": 0, "n": 16, "max_tokens": 1000000, "ignore_eos": True, "attention_sinks": 4, "window": 60}
    extra = []
    for _ in range(7):
        before = server.wait_until_idle()
        came = b""
        with server.connect() as connection:
            connection.sendall(post("/v1/completions", asked))
            while came.count(b'"index":15,') < 20:
                came += connection.recv(65536)
            reset(connection)
        after = server.wait_until_idle()
        assert after["tessera_answers_cancelled_total"] == before["tessera_answers_cancelled_total"] + 16
        extra.append(after["tessera_steps_total"] - before["tessera_steps_total"] - came.count(b'"index":0,'))
    assert statistics.median(extra) <= most, extra


def test_connections_beyond_the_limit_are_refused_and_others_go_on(start):
    server = start("connections", "--max-connections", "16")
    held = [server.connect() for _ in range(16)]
    for connection in held:  # all are accepted before the next one comes
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    with server.connect() as extra:
        try:
            extra.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        except OSError:
            pass
        data = read_all(extra)
        assert data == b"" or one(data).status == 503
    held[0].sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    figures = one(read_all(held[0])).body.decode()
    assert "\ntessera_refused_connections_total 1\n" in figures and "\ntessera_connections 16\n" in figures
    for connection in held[1:]:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        connection.close()
    deadline = time.monotonic() + 30
    while server.request("GET", "/health")[0] != 200:
        assert time.monotonic() < deadline


def test_a_client_that_does_not_read_loses_its_stream(start):
    """Its answer must not pile up in the server's memory."""
    server = start("unread", "--max-sequences", "4")
    asked = {"prompt": "Once", "stream": True, "max_tokens": 1000000, "ignore_eos": True, "attention_sinks": 4, "window": 60, "n": 4, "logprobs": 20}
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(post("/v1/completions", asked))
    deadline = time.monotonic() + 120
    while server.metrics()["tessera_generated_tokens_total"] == 0:
        assert time.monotonic() < deadline
    while server.metrics()["tessera_sequences_running"]:
        assert time.monotonic() < deadline, "it writes for nobody"
        time.sleep(0.1)
    connection.close()
    server.wait_until_idle()


@pytest.mark.parametrize(
    ("request_line", "statuses"),
    [("GET /nothing HTTP/1.1", {404}), ("DELETE /v1/models HTTP/1.1", {405}), ("GET /v1/completions HTTP/1.1", {405}), ("GET / HTTP/3.0", {400, 505}),
     ("GET /../../etc/passwd HTTP/1.1", {400, 404}), ("GET /%00 HTTP/1.1", {400, 404}), ("BREW /pot HTTP/1.1", {400, 404, 405, 501}), ("GET", {400}), ("", {400})],
)
def test_requests_for_what_is_not_there(server, request_line, statuses):
    data = server.exchange(f"{request_line}\r\nHost: a\r\n\r\n".encode())
    reply = one(data)
    assert reply.status in statuses
    assert error_of(reply)
    if reply.status == 405:
        assert reply.headers["allow"]


def test_wrong_types_and_bodies(server):
    head = "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n"
    for kind, body, status in [("text/plain", b"{}", 415), ("application/json", b"", 400), ("application/json", b"[]", 400), ("application/json", b"{", 400),
                               ("application/json", b"[" * 100000, 400), ("application/json", b'{"prompt": "\xff"}', 400), ("application/json", b'{"n": 1, "n": 2', 400)]:
        reply = one(server.exchange(head.format(kind, len(body)).encode() + body))
        assert reply.status == status, (body[:40], reply)
        assert error_of(reply)


def test_the_headers_of_the_page(server):
    status, headers, body = server.request("GET", "/")
    names = {name.lower(): value for name, value in headers.items()}
    policy = names["content-security-policy"]
    assert status == 200 and names["content-type"].startswith("text/html")
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy and "unsafe-eval" not in policy and "*" not in policy
    assert names["x-content-type-options"] == "nosniff"
    assert b"<title>Tessera" in body
