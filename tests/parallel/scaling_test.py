"""The tables of docs/SCALING.md are those of bench/scaling.py, and its formulas keep their promises."""

import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import scaling


class Scaling(unittest.TestCase):
    def test_the_page_has_what_the_program_prints(self) -> None:
        page = (ROOT / "docs/SCALING.md").read_text().splitlines()
        printed = subprocess.run(
            [sys.executable, "-B", str(ROOT / "bench/scaling.py")], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        self.assertGreater(len(printed), 15)
        for line in filter(None, printed):
            self.assertIn(line, page)

    def test_one_rank_takes_the_measured_time(self) -> None:
        for shape in scaling.SHAPES:
            for weights, measured in shape.token_ms.items():
                self.assertAlmostEqual(scaling.tensor_token_ms(shape, weights, scaling.NVLINK, 1), measured)

    def test_a_context_is_spread_until_it_fits(self) -> None:
        for shape in scaling.SHAPES:
            for weights in shape.token_ms:
                times = [scaling.context_token_ms(shape, weights, scaling.NVLINK, n, 1 << 20) for n in (1, 2, 4, 8)]
                self.assertIsNone(times[0])
                fitting = [ms for ms in times if ms is not None]
                self.assertGreater(len(fitting), 0)
                self.assertEqual(fitting, sorted(fitting, reverse=True))

    def test_what_is_not_split_stays(self) -> None:
        one = {"what": "generate", "ms_per_token": 10.0, "split_ms": 8.0}
        many = {"ranks": 2, "sums": 13, "sum_us": 20.0, "token_bytes": 30e6, "read_gb_per_s": 10.0}
        self.assertAlmostEqual(scaling.predicted_ms(one, many), 2.0 + 4.0 + 0.26)
        shared = {**many, "token_bytes": 50e6}  # two ranks that read at half the speed of one
        self.assertAlmostEqual(scaling.predicted_ms(one, shared), 2.0 + 5.0 + 0.26)
        self.assertAlmostEqual(scaling.predicted_ms({"what": "ring", "ms": 10.0}, {"ranks": 2}), 5.0)

    def test_a_slower_link_never_helps(self) -> None:
        for shape in scaling.SHAPES:
            for ranks in (2, 4, 8, 16):
                for weights in shape.token_ms:
                    near = scaling.tensor_token_ms(shape, weights, scaling.NVLINK, ranks)
                    self.assertGreater(scaling.tensor_token_ms(shape, weights, scaling.NETWORK, ranks), near)


if __name__ == "__main__":
    unittest.main()
