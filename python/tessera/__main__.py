"""`python -m tessera` and the command `tessera`: the program that the package carries."""

import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "bin" / "tessera"


def main() -> None:
    os.execv(PROGRAM, [str(PROGRAM), *sys.argv[1:]])


if __name__ == "__main__":
    main()
