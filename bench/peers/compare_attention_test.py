#!/usr/bin/env python3
"""compare_attention.py without a GPU: a program that answers as bench_gpu --turns does, and peers that take no time."""
import pathlib
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fake_gpu  # noqa: E402

fake_gpu.install_torch()

import attention_peers  # noqa: E402
import compare_attention  # noqa: E402

PROGRAM = """#!{python}
import json, sys
def given(option): return sys.argv[sys.argv.index(option) + 1].split(",")
print(json.dumps({{"op": "ceilings", "tb_per_s": 4.0, "tflop_per_s": 700.0}}), flush=True)
for dim in map(int, given("--dims")):
    for length in map(int, given("--seq")):
        for mask in given("--masks"):
            row = {{"op": "attention", "mask": mask, "batch": 2, "S": length, "heads": 8, "D": dim, "flops": 7 * 10**9, "floor": 10.0, "rel": 2e-3,
                   "kernel": "cuda.some"}}
            if ":" in mask:
                row |= {{"tiles": 0.1, "causal": True, "pattern": [[0], [1]]}}
            print(json.dumps(row), flush=True)
            while sys.stdin.readline().strip() == "go":
                print(json.dumps({{"us": [100.0, 120.0]}}), flush=True)
"""


class Graph:
    def replay(self):
        return 220.0


def refuse(row, sets):
    raise RuntimeError("no kernel for this shape\nand more")


class CompareAttentionTest(unittest.TestCase):
    def compare(self, *arguments, peers):
        patches = [(attention_peers, "inputs", lambda row: []), (attention_peers, "of", lambda row, sparse: peers)]
        return fake_gpu.compare(self, compare_attention, PROGRAM, arguments, patches)

    def test_every_cell_has_ratios_and_a_share_of_the_rate(self):
        out, err, folder = self.compare("--seq", "512,1024", "--dims", "64", "--masks", "full,causal",
                                        peers={"flash_us": lambda row, sets: Graph(), "cudnn_us": lambda row, sets: Graph()})
        self.assertIn("| causal | 1024 | 64 | 2 x 8 | 110.0 | 64 | 32 | 2.00x | 32 | 2.00x | 9% | 2.0e-03 | cuda.some |", out)
        self.assertIn("Beside cuDNN: 2.00x to 2.00x, median 2.00x, in 4 cells; below 1: none.", out)
        self.assertEqual(err, "")
        self.assertEqual(len((folder / "attention_table.csv").read_text().splitlines()), 5)
        self.assertIn("<svg", (folder / "attention_d64.svg").read_text())

    def test_a_peer_that_refuses_is_named_and_the_others_go_on(self):
        out, err, _ = self.compare("--seq", "512", "--dims", "256", "--masks", "full", peers={"flash_us": lambda row, sets: Graph(), "cudnn_us": refuse})
        self.assertIn("| 32 | 2.00x | - | - |", out)
        self.assertIn("cudnn, full S=512 D=256 2 x 8: no kernel for this shape\n", err)

    def test_what_there_is_no_time_for_is_named(self):
        slow = {"flash_us": lambda row, sets: Graph()}
        with mock.patch.object(compare_attention.time, "monotonic", mock.Mock(side_effect=[0, 1, 99])):
            out, err, _ = self.compare("--seq", "512", "--dims", "64", "--masks", "full,causal", "--seconds", "10", peers=slow)
        self.assertIn("not measured: causal S=512 D=64 2 x 8 and all after it", err)
        self.assertNotIn("| causal |", out)

    def test_sparse_masks_are_shares_of_dense_time(self):
        out, _, folder = self.compare("--sparse", "--dims", "64", "--masks", "full,full@cuda.mma,causal-local:3", peers={"flex_us": lambda row, sets: Graph()})
        self.assertIn("| 64 | causal-local:3 | 10.0% | 110.0 | 100.0% | 64 | 220.0 | 100.0% | 2.00x | 2.0e-03 | cuda.some |", out)
        self.assertTrue((folder / "attention_sparse.csv").is_file())


if __name__ == "__main__":
    unittest.main()
