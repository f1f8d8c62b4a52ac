"""The program that the package carries."""

from pathlib import Path

PROGRAM = Path(__file__).parent / "bin" / "tessera"
