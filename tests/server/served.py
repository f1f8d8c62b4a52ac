"""A live `tessera serve` and the plainest ways to talk to it."""
import dataclasses
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import time

PROMPT = "Once upon a time"
# A request for the same few tokens every time.
GREEDY = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0}


class Server:
    """Starts the program and waits for the line that says where it listens."""

    def __init__(self, program: str, log: pathlib.Path, *arguments: str, port: int = 0, host: str = "127.0.0.1", ready_seconds: float = 120):
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log, self.host = log, host
        environment = dict(os.environ, TSAN_OPTIONS="halt_on_error=0:exitcode=66", ASAN_OPTIONS="detect_leaks=1:exitcode=66")
        command = [program, "serve", "--port", str(port), "--device", "cpu", *([] if host == "127.0.0.1" else ["--host", host]), *arguments]
        if "tsan" in program:  # the sanitizer of older compilers wants addresses that are not random
            command = ["setarch", "-R", *command]
        with log.open("w") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
        self.port = self._wait_for_port(time.monotonic() + ready_seconds)

    def _wait_for_port(self, deadline: float) -> int:
        while time.monotonic() < deadline:
            found = re.search(r"http://[^\s/]+:(\d+)", self.log.read_text())
            if found:
                return int(found[1])
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.kill()
        raise RuntimeError(f"the server did not start:\n{self.log.read_text()}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # ---- whole requests ----

    def request(self, method: str, path: str, body=None, headers=None, timeout: float = 60) -> tuple[int, dict, bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            text = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
            sent = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, text, sent | (headers or {}))
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def get(self, path: str) -> bytes:
        status, _, body = self.request("GET", path)
        assert status == 200, (path, status, body)
        return body

    def greedy(self) -> str:
        status, _, body = self.request("POST", "/v1/completions", GREEDY)
        assert status == 200, (status, body)
        return json.loads(body)["choices"][0]["text"]

    # ---- raw bytes ----

    def connect(self, timeout: float = 30) -> socket.socket:
        connection = socket.create_connection((self.host, self.port), timeout=timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def exchange(self, data: bytes, timeout: float = 30) -> bytes:
        """Sends the bytes, says that no more will come, and reads until the server closes."""
        with self.connect(timeout) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # refused before all was sent: what it says can still be read
            return read_all(connection)

    # ---- what it holds ----

    def metrics(self) -> dict[str, float]:
        """The sum of each metric over its labels."""
        sums: dict[str, float] = {}
        for line in self.get("/metrics").decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = name.split("{")[0]
                sums[name] = sums.get(name, 0) + float(value)
        return sums

    def wait_until_idle(self, seconds: float = 60, connections: bool = True) -> dict[str, float]:
        """No request, no sequence, no page in use and, if `connections`, no connection but ours."""
        deadline = time.monotonic() + seconds
        while True:
            now = self.metrics()
            busy = {name: now[name] for name in ("tessera_sequences_running", "tessera_sequences_waiting", "tessera_kv_pages_used") if now[name]}
            if connections and now["tessera_connections"] > 1:
                busy["tessera_connections"] = now["tessera_connections"]
            if not busy:
                return now
            assert time.monotonic() < deadline, f"still held after {seconds} s: {busy}"
            time.sleep(0.05)

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_alive(self) -> bool:
        return self.process.poll() is None

    # ---- the end ----

    def stop(self, seconds: float = 60) -> int:
        """SIGTERM; the exit status."""
        if self.is_alive():
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def complaints(self) -> str:
        """What a sanitizer or a fault wrote, with the lines after it."""
        text = self.log.read_text(errors="replace")
        at = re.search(r"ERROR: AddressSanitizer|WARNING: ThreadSanitizer|runtime error:|LeakSanitizer|terminate called", text)
        return text[at.start() : at.start() + 4000] if at else ""


def command_line(program: str, *arguments: str, text: str = "") -> list[dict]:
    """What a command says with --json, given the text on its standard input: an object, or one a line."""
    done = subprocess.run([program, *arguments, "--json"], check=True, capture_output=True, text=True, input=text)
    return [json.loads(part) for part in ([done.stdout] if arguments[0] != "chat" else done.stdout.splitlines())]


def generated(program: str, *arguments: str) -> dict:
    """What `tessera generate` says."""
    return command_line(program, "generate", "--device", "cpu", *arguments)[0]


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while True:
        try:
            part = connection.recv(65536)
        except ConnectionResetError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


@dataclasses.dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes


def replies(data: bytes) -> list[Reply]:
    """The responses in a stream of bytes, strictly: the rest must be empty."""
    found = []
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        assert end, f"half a head: {data[:200]!r}"
        first, *lines = head.decode("latin-1").split("\r\n")
        line = re.fullmatch(r"HTTP/1\.[01] (\d{3}) [ -~]*", first)
        assert line, f"no status line: {first!r}"
        headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
        if "chunked" in headers.get("transfer-encoding", ""):
            body, rest = unchunk(rest)
        elif "content-length" in headers:
            length = int(headers["content-length"])
            assert len(rest) >= length, f"{len(rest)} of {length} bytes of a body"
            body, rest = rest[:length], rest[length:]
        elif line[1].startswith("1"):
            body = b""
        else:  # ends with the connection
            body, rest = rest, b""
        if not line[1].startswith("1"):  # an interim answer; the real one follows
            found.append(Reply(int(line[1]), headers, body))
        data = rest
    return found


def unchunk(data: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        size, end, data = data.partition(b"\r\n")
        assert end, "a chunked body without its end"
        length = int(size.split(b";")[0], 16)
        assert data[length : length + 2] == b"\r\n", "a chunk of the wrong length"
        body, data = body + data[:length], data[length + 2 :]
        if length == 0:
            return body, data


def post(path: str, body: dict | bytes, *headers: str) -> bytes:
    """A POST request as bytes."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {len(text)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + text


def reset(connection: socket.socket) -> None:
    """Closes without a good-bye: the other side gets a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
