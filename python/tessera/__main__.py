"""`python -m tessera` and the command `tessera`: the program that the package carries."""

import os
import sys

from .program import PROGRAM


def main() -> None:
    os.execv(PROGRAM, [str(PROGRAM), *sys.argv[1:]])


if __name__ == "__main__":
    main()
