#!/usr/bin/env python3
"""compare_decode.py without a GPU: a program that answers as bench_gpu decode does, and peers that take no time."""
import pathlib
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fake_gpu  # noqa: E402

fake_gpu.install_torch()

import compare_decode  # noqa: E402

PROGRAM = """#!{python}
import json, sys
def given(option): return sys.argv[sys.argv.index(option) + 1].split(",")
print(json.dumps({{"op": "ceilings", "tb_per_s": 4.0, "tflop_per_s": 700.0}}), flush=True)
kv_heads, group, dim = (int(given(o)[0]) for o in ("--kv-heads", "--groups", "--dims"))
for batch in map(int, given("--batch")):
    for keys in map(int, given("--context")):
        for stored in given("--kv-dtype"):
            for page in map(int, given("--page")):
                size = 4 * batch * keys * kv_heads * dim // (1 if stored == "bf16" else 2)
                if size > int(given("--most-bytes")[0]):
                    continue
                print(json.dumps({{"op": "decode", "batch": batch, "S": keys, "heads": kv_heads * group, "kv_heads": kv_heads, "D": dim, "page": page,
                      "kv_dtype": stored, "us": 200.0 if stored == "bf16" else 100.0, "spread": [1, 2], "tb_per_s": 3.0, "floor": 50.0, "bytes": size,
                      "rel": 2e-3, "kernel": "cuda.split"}}), flush=True)
"""


class CompareDecodeTest(unittest.TestCase):
    def compare(self, *arguments):
        patches = [(compare_decode, "peers", lambda names, *cell: {f"{name}_us": 180.0 for name in names})]
        return fake_gpu.compare(self, compare_decode, PROGRAM, arguments, patches)

    def test_rows_are_compared_with_peers_and_with_16_bits(self):
        out, err, folder = self.compare("--heads", "32:8:128", "--batch", "1,64", "--context", "512,4096", "--pages", "0,64")
        self.assertIn("| 64 x 4096 | 32 (8) | 128 | 64 | bf16 | 200.0 | 3.00 | 25% | 180.0 | 0.90x | 180.0 | 0.90x | - | 2.0e-03 | cuda.split |", out)
        self.assertIn("| 1 x 4096 | 32 (8) | 128 | - | int8 | 100.0 | 3.00 | 50% | 180.0 | 1.80x | 180.0 | 1.80x | 2.00x | 2.0e-03 | cuda.split |", out)
        self.assertNotIn("| 1 x 512 | 32 (8) | 128 | - | int8 |", out)  # too short for 8 bits
        text = " ".join(out.split())  # lines are wrapped
        self.assertIn("Beside cuDNN, dense: 0.90x to 0.90x, median 0.90x, in 4 cells; below 1: 1 x 4096, 32 (8), D 128 (0.90x)", text)
        self.assertIn("fp8 beside bf16: 2.00x to 2.00x, median 2.00x, in 4 cells; below 1.7: none.", text)
        self.assertEqual(err, "")
        self.assertEqual(len((folder / "decode_attention_table.csv").read_text().splitlines()), 17)
        for name in ("decode_speed_32_8_d128.svg", "decode_bandwidth_32_8_d128.svg"):
            self.assertIn("<svg", (folder / name).read_text())

    def test_what_has_too_many_bytes_is_left_out(self):
        out, _, _ = self.compare("--heads", "32:32:128", "--batch", "64", "--context", "4096,131072", "--pages", "0", "--kv-dtypes", "bf16")
        self.assertIn("| 64 x 4096 |", out)
        self.assertNotIn("131072 |", out)

    def test_what_there_is_no_time_for_is_named_and_the_rest_is_kept(self):
        with mock.patch.object(compare_decode.time, "monotonic", mock.Mock(side_effect=[0, 1, 1, 1, *[99] * 99])):
            out, err, _ = self.compare("--minutes", "1")
        self.assertIn("not measured: 32:32:128 and all after it", err)
        self.assertIn("| 1 x 512 | 32 (8) | 128 |", out)
        self.assertNotIn("| 1 x 4096 |", out)

    def test_a_dry_run_names_every_command_and_every_cell_of_the_peers(self):
        out, _, folder = self.compare("--dry-run", "--program", "bench_gpu", "--heads", "32:8:128")
        self.assertIn("bench_gpu decode --kv-heads 8 --groups 4 --dims 128 --batch 1,4,16,64 --context 512,4096,32768,131072 --page 0 --kv-dtype bf16", out)
        self.assertIn("--batch 1,64 --context 4096,32768,131072 --page 0,64 --kv-dtype int8,fp8", out)
        self.assertIn("PyTorch, cudnn and flash, 32:8:128: 1 x 512, 1 x 4096,", out)
        self.assertNotIn("64 x 131072", out)
        self.assertFalse((folder / "decode_attention_table.md").exists())


if __name__ == "__main__":
    unittest.main()
