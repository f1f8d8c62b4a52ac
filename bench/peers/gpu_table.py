"""Shared by the scripts that compare single ops on a GPU: timing by graph replay, running bench_gpu, writing tables."""
import contextlib
import csv
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import textwrap
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import plot  # noqa: E402

WARMUPS, REPLAYS = 3, 15  # as in bench/gpu/timer.cc


class Captured:
    """A graph that makes each of several calls once. Its time includes no launch by the host. If each call has its own weight,
    no weight is still in the cache."""

    def __init__(self, calls):
        import torch

        self.calls, self.graph = len(calls), torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for call in calls:
                call()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(self.graph):
            for call in calls:
                call()

    def replay(self):
        """Microseconds of one call."""
        import torch

        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        self.graph.replay()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) * 1e3 / self.calls


def microseconds(calls):
    """Median time of one call."""
    graph = Captured(calls)
    return statistics.median([graph.replay() for _ in range(WARMUPS + REPLAYS)][WARMUPS:])


def copies_beyond_cache(size, most=256):
    """The number of copies of this many bytes that exceed the L2 cache by far, as in bench/gpu/timer.cc."""
    return max(2, min(most, math.ceil(200e6 / size)))


def ours(program, *arguments):
    """The rows that bench_gpu prints, as they come, its ceilings first. Its messages on stderr are shown."""
    command = [str(program), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout:
            yield json.loads(line)
    if running.returncode != 0:
        print(f"{' '.join(command)} ended with {running.returncode}", file=sys.stderr)


class Partner:
    """bench_gpu with --turns. Use `for row in partner`, and for each row call partner.replay() as often as wanted: it returns the
    microseconds of some replays. bench_gpu ends with its `with`, whether all rows have been seen or not."""

    def __init__(self, program, *arguments):
        self.command = [str(program), *map(str, arguments), "--turns"]
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def __iter__(self):
        for line in self.process.stdout:
            yield json.loads(line)  # the ceilings come first; they are not timed
            if '"ceilings"' not in line:
                self._say("next")
        if self.process.wait() != 0:
            print(f"{' '.join(self.command)} ended with {self.process.returncode}", file=sys.stderr)

    def replay(self):
        self._say("go")
        return json.loads(self.process.stdout.readline())["us"]

    def _say(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()


def need_program(parser, program):
    if not pathlib.Path(program).is_file():
        parser.error(f"{program} is not there: build the target bench_gpu, or give --program")


def start_torch(script):
    try:
        import torch
    except ImportError as error:
        sys.exit(f"{script}: {error}; pip install torch")
    if not torch.cuda.is_available():
        sys.exit(f"{script}: torch finds no GPU here")
    torch.manual_seed(0)
    return torch


def heading(script, text, versions=(), timing=f"Medians of {REPLAYS} graph replays."):
    """The line above a table: the date, the commit, the machine, and what was measured."""
    import torch

    git = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    commit = os.environ.get("TESSERA_COMMIT") or git.stdout.strip() or "unknown"  # TESSERA_COMMIT is for machines without git
    software = ", ".join([f"torch {torch.__version__}", *versions])
    return (f"{time.strftime('%Y-%m-%d')}, commit {commit}, {torch.cuda.get_device_name()}, "
            f"{software}. {text} {timing} Made by bench/peers/{script}.")


def cell(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def wrapped(text):
    """Paragraphs in lines as long as a page of docs/ may have (scripts/check_docs.py)."""
    return "\n\n".join(textwrap.fill(part, 120, break_on_hyphens=False) for part in text.split("\n\n"))


def markdown(head, columns, rows):
    lines = [wrapped(head), "", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def write_csv(path, columns, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
