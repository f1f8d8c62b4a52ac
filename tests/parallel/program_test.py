"""The program under mpirun: the tokens of one process, rank 0 alone speaks, and a rank that dies ends the run.

program_test.py PROGRAM MPIRUN GOLDENS MODEL
"""

import json
import os
import signal
import subprocess
import sys
import time
import unittest
import urllib.request
from pathlib import Path

PROGRAM, MPIRUN, GOLDENS, MODEL = sys.argv[1:5]
MPI = [MPIRUN, "--oversubscribe", "--bind-to", "none", "-n"]
PROMPT = ["--prompt-ids", "5,17,200,3,99,42,7,8", "--max-tokens", "12", "--greedy", "--ignore-eos", "--json"]
END_SECONDS = 15.0


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def tessera(ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run([*([*MPI, str(ranks)] if ranks else []), PROGRAM, *arguments])


def process_of_rank(parent: int, rank: int) -> int:
    """The process that mpirun started as this rank."""
    wanted = f"OMPI_COMM_WORLD_RANK={rank}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            ppid = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if ppid == parent and wanted in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
        except (OSError, IndexError, ValueError):
            continue
    raise RuntimeError(f"mpirun has started no rank {rank}")


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Generate(unittest.TestCase):
    def test_the_tokens_are_those_of_one_process(self) -> None:
        model = ["--model", f"{GOLDENS}/llama-gqa", "--device", "cpu"]
        alone = json.loads(tessera(0, "generate", *model, *PROMPT).stdout)
        for parallel in ("tensor:2", "context:2"):
            done = tessera(2, "generate", "--parallel", parallel, *model, *PROMPT)
            self.assertEqual(done.returncode, 0, done.stderr)
            # One JSON object: rank 1 has printed nothing.
            self.assertEqual(json.loads(done.stdout)["token_ids"], alone["token_ids"], parallel)

    def test_one_rank_needs_no_mpirun(self) -> None:
        model = ["--model", f"{GOLDENS}/llama-gqa", "--device", "cpu"]
        alone = json.loads(tessera(0, "generate", *model, *PROMPT).stdout)
        for parallel in ("tensor:1", "context:1"):
            done = tessera(0, "generate", "--parallel", parallel, *model, *PROMPT)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["token_ids"], alone["token_ids"], parallel)

    def test_the_perplexity_is_that_of_one_process(self) -> None:
        text = "Once upon a time there was a little dog. He liked to play in the park with his friends. " * 12
        # Activations of 8 bits would turn a rounding into a step of a code.
        command = ["perplexity", "--model", MODEL, "--device", "cpu", "--activations", "exact", "--context", "192",
                   "--json", "--text", text]
        alone = json.loads(tessera(0, *command).stdout)["ppl"]
        for ranks, parallel in ((2, "tensor:2"), (2, "context:2"), (3, "context:3")):
            done = tessera(ranks, *command, "--parallel", parallel)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertAlmostEqual(json.loads(done.stdout)["ppl"] / alone, 1.0, 4, parallel)

    def test_devices_names_mpi_and_nccl(self) -> None:
        lines = tessera(0, "devices").stdout.splitlines()
        self.assertRegex(lines[-1], "^Several processes: MPI: .+; NCCL: .+$")
        found = json.loads(tessera(0, "devices", "--json").stdout)
        self.assertTrue(found["mpi"]["built"])
        self.assertEqual(set(found["nccl"]), {"built", "usable", "text"})

    def test_verify_holds_every_check(self) -> None:
        folder = f"{GOLDENS}/neox-parallel"
        done = tessera(2, "verify", "--parallel", "tensor:2", "--model", folder, "--device", "cpu",
                       "--golden", f"{folder}/golden.safetensors")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_wrong_numbers_of_processes_are_refused(self) -> None:
        done = tessera(0, "generate", "--parallel", "tensor:2", "Hello")
        self.assertEqual(done.returncode, 2)
        sentence = "--parallel tensor:2 needs 2 processes, and one was started: mpirun -n 2 tessera ..."
        self.assertIn(sentence, done.stderr)
        done = tessera(0, "generate", "--parallel", "pipeline:2", "Hello")
        self.assertIn("neither tensor:N nor context:N", done.stderr)

    def test_an_error_ends_every_rank(self) -> None:
        # One head cannot be split: every rank says so, and none waits.
        done = tessera(2, "generate", "--parallel", "tensor:2", "--model", f"{GOLDENS}/neox-head80-old-keys", *PROMPT)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("cannot be split over 2 processes without cutting one", done.stderr)


class Serve(unittest.TestCase):
    def setUp(self) -> None:
        serve = ["serve", "--parallel", "tensor:2", "--model", MODEL, "--device", "cpu", "--port", "0", "--quiet"]
        command = [*MPI, "2", PROGRAM, *serve]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout
        self.url = ""
        for line in self.process.stdout:
            if " at http://" in line:
                self.url = line.split(" at ")[1].split()[0]
                break
        self.assertTrue(self.url)

    def tearDown(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def ask(self, tokens: int) -> dict:
        body = json.dumps({"prompt": "Once upon a time", "max_tokens": tokens, "temperature": 0}).encode()
        request = urllib.request.Request(self.url + "/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def ends_within(self, seconds: float) -> tuple[int, str]:
        start = time.monotonic()
        text, _ = self.process.communicate(timeout=seconds)
        self.assertLess(time.monotonic() - start, seconds)
        return self.process.returncode, text

    def test_it_answers_and_a_dead_rank_ends_it(self) -> None:
        self.assertEqual(self.ask(8)["usage"]["completion_tokens"], 8)
        first = process_of_rank(self.process.pid, 0)
        os.kill(process_of_rank(self.process.pid, 1), signal.SIGKILL)
        status, text = self.ends_within(END_SECONDS)
        self.assertNotEqual(status, 0)
        self.assertIn("rank 1", text)  # mpirun says which
        deadline = time.monotonic() + END_SECONDS
        while is_running(first) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertFalse(is_running(first))


if __name__ == "__main__":
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1")
    unittest.main(argv=sys.argv[:1])
