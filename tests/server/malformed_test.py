"""Ten thousand malformed requests from a grammar: none brings the server down, all that are answered are answered well."""
import json
import random

from served import post, replies

METHODS = ["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH", "TRACE", "CONNECT", "get", "G\x00T", "", "GET" * 2000, "\xff\xfe"]
TARGETS = ["/", "/health", "/metrics", "/v1/models", "/v1/models/x", "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/openapi.json", "*", "",
           "//", "/%", "/%zz", "/\x00", "/../..", "http://a/health", "/v1/completions?" + "a=b&" * 500, "/" + "x" * 20000, "/\u00e9", "/v1/completions#"]
VERSIONS = ["HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/9999999999.1", "HTTP/", "http/1.1", "", "HTTP/1.1 x"]
NAMES = ["Host", "Content-Length", "Content-Type", "Transfer-Encoding", "Connection", "Expect", "Authorization", "Origin", "Upgrade", "Cookie", "X", "", " ", "a b", "\x01",
         "Content-Length ", "\xff", "X" * 5000]
VALUES = ["a", "0", "2", "-1", "17", "1000000000000", "99999999999999999999", "chunked", "gzip, chunked", "chunked, chunked", "identity", "close", "keep-alive", "upgrade",
          "100-continue", "Bearer ", "Bearer \x00", "application/json", "application/json; charset=\xff", "text/html", "", "\x00", "\r", "a\nb", "\t", "h2c, websocket", "v" * 9000]
ENDS = ["\r\n"] * 12 + ["\n", "\r", "\r\r\n", "", "\n\r"]
NUMBERS = [0, 1, -1, 1.5, 2**31, -(2**31) - 1, 2**63, -(2**63), 2**64, 1e308, -0.0, 1e-320]
FIELDS = ["prompt", "messages", "model", "n", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "stop", "seed", "stream", "stream_options", "echo",
          "logprobs", "top_logprobs", "logit_bias", "presence_penalty", "frequency_penalty", "user", "attention_sinks", "window", "ignore_eos", "cache_prompt", "tools",
          "response_format", "content", "tokens", "text", "ids", ""]
ROUTES = ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"]
# What a server may say to such a request. 500 is not among them.
STATUSES = {200, 204, 400, 401, 403, 404, 405, 408, 411, 413, 414, 415, 417, 422, 426, 429, 431, 501, 505}


def value(rng: random.Random, depth: int = 0):
    """Any JSON value."""
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind == 0:
        return rng.choice(NUMBERS)
    if kind == 1:
        return rng.choice(["", "Once", "\x00", "\ud800", "\U0001f600" * 20, "a" * rng.choice([1, 300, 5000]), "<|begin|>", "{{", "null"])
    if kind == 2:
        return None
    if kind in (3, 4):
        return rng.random() < 0.5
    if kind == 5:
        return rng.randrange(-3, 40)
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 7:
        return {rng.choice(FIELDS): value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return {"role": rng.choice(["user", "system", "assistant", "", 5]), "content": value(rng, depth + 1)}


def bodies(rng: random.Random) -> bytes:
    """A request's JSON with fields that are wrong, or text that is no JSON at all. A valid one asks for one token."""
    fields = {"prompt": "Once", "max_tokens": 1} | {rng.choice(FIELDS): value(rng) for _ in range(rng.randrange(1, 5))}
    if isinstance(fields["max_tokens"], (int, float)) and not isinstance(fields["max_tokens"], bool) and fields["max_tokens"] > 2:
        fields["max_tokens"] = 2
    if isinstance(fields.get("max_completion_tokens"), int) and fields["max_completion_tokens"] > 2:
        fields["max_completion_tokens"] = 2
    if isinstance(fields.get("n"), int) and fields["n"] > 3 and fields["n"] < 1000:
        fields["n"] = 3
    text = json.dumps(fields).encode()
    kind = rng.randrange(8)
    if kind == 0:
        return text[: rng.randrange(len(text))]
    if kind == 1:  # a byte is another
        at = rng.randrange(len(text))
        return text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
    if kind == 2:
        return rng.choice([b"[" * 20000, b'{"a":' * 5000, b"\x00" * 100, b"\xef\xbb\xbf{}", b"NaN", b'{"n":NaN}', b"1e99999", b'"' + b"\\u" * 500, b"{} {}"])
    return text


def head(rng: random.Random) -> bytes:
    """A request's head with anything wrong in it, and perhaps something after it."""
    line = f"{rng.choice(METHODS[:7] if rng.random() < 0.7 else METHODS)} {rng.choice(TARGETS)} {rng.choice(VERSIONS[:2] if rng.random() < 0.7 else VERSIONS)}"
    lines = [line, "Host: a"] if rng.random() < 0.8 else [line]
    lines += [f"{rng.choice(NAMES)}{rng.choice([': '] * 8 + [':', ' : ', '', '::'])}{rng.choice(VALUES)}" for _ in range(rng.randrange(5))]
    rng.shuffle(lines) if rng.random() < 0.05 else None
    text = "".join(part + rng.choice(ENDS) for part in lines) + rng.choice(["\r\n"] * 9 + [""])
    return text.encode("utf-8" if rng.random() < 0.5 else "latin-1", "replace") + rng.choice([b"", b"", b"{}", b"5\r\nabcde\r\n0\r\n\r\n", b"ffffffffffffffff\r\n", b"\x16\x03\x01\x02\x00"])


def malformed(rng: random.Random) -> bytes:
    kind = rng.randrange(10)
    if kind < 5:
        return post(rng.choice(ROUTES), bodies(rng))
    if kind < 9:
        return head(rng)
    return rng.randbytes(rng.randrange(1, 400))  # not even text


def check(data: bytes, answer: bytes) -> None:
    if data.startswith(b"HEAD "):  # its length is of a body that is not sent
        assert answer == b"" or answer.startswith(b"HTTP/1.")
        return
    for reply in replies(answer):
        assert reply.status in STATUSES, (data[:300], reply)
        if reply.status >= 400 and reply.headers.get("content-type", "").startswith("application/json"):
            error = json.loads(reply.body)["error"]
            assert error["message"], (data[:300], reply)


def test_malformed_requests(server, request):
    expected, held = server.greedy(), server.descriptors()
    rng = random.Random(20261116)
    answered = 0
    for _ in range(request.config.getoption("--malformed")):
        data = malformed(rng)
        answer = server.exchange(data)
        check(data, answer)
        answered += answer != b""
    server.wait_until_idle()
    assert answered > request.config.getoption("--malformed") * 0.5
    assert server.greedy() == expected
    assert server.descriptors() <= held + 2
