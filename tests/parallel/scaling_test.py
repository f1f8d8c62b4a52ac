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

    def test_a_slower_link_never_helps(self) -> None:
        for shape in scaling.SHAPES:
            for ranks in (2, 4, 8, 16):
                for weights in shape.token_ms:
                    near = scaling.tensor_token_ms(shape, weights, scaling.NVLINK, ranks)
                    self.assertGreater(scaling.tensor_token_ms(shape, weights, scaling.NETWORK, ranks), near)


if __name__ == "__main__":
    unittest.main()
