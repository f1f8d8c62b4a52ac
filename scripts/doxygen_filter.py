#!/usr/bin/env python3
"""Doxygen's input filter: turns the plain comments of the public headers into documentation comments.

The headers have ordinary // comments. A comment on its own line documents what follows it. One at the end of a line
documents what is before it. The one that opens a file documents the file. Indented lines are drawings, formulas and
tables: they stay as they are.
"""

import re
import sys
from pathlib import Path

COMMENT = re.compile(r"^(\s*)//(?: (.*))?$")
TRAILING = re.compile(r"^(.*\S.*?)(\s+)// (.*)$")


def escaped(text: str) -> str:
    """The text without what Doxygen would take for markup."""
    return re.sub(r"([\\@<>#&*%])", r"\\\1", text)


def block(indent: str, lines: list[str], opening: str = "/**") -> list[str]:
    """One comment; runs of indented lines in \\verbatim."""
    result = [f"{indent}{opening}"]
    drawing = False
    for line in lines:
        if line and line.startswith(" ") != drawing:
            result.append(f"{indent}\\{'end' if drawing else ''}verbatim")
            drawing = not drawing
        result.append(f"{indent}{line if drawing else escaped(line)}".rstrip())
    return [*result, *([f"{indent}\\endverbatim"] if drawing else []), f"{indent}*/"]


def filtered(source: list[str]) -> list[str]:
    result: list[str] = []
    at = 0
    while at < len(source):
        line = source[at]
        if match := COMMENT.match(line):
            lines = []
            while at < len(source) and (more := COMMENT.match(source[at])):
                lines.append(more[2] or "")
                at += 1
            follows = source[at].strip() if at < len(source) else ""
            if not result:
                result += block("", lines, "/** \\file")
            elif follows and not follows.startswith(("}", "#")):
                result += block(match[1], lines)
            continue
        if match := TRAILING.match(line):
            column = len(match[1] + match[2])
            lines = [match[3]]
            while at + 1 < len(source) and (more := COMMENT.match(source[at + 1])) and len(more[1]) == column:
                lines.append((more[2] or "").strip())
                at += 1
            result.append(f"{match[1]}  ///< {escaped(' '.join(lines))}")
        else:
            result.append(line)
        at += 1
    return result


if __name__ == "__main__":
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    print("\n".join(filtered(text.splitlines()) if sys.argv[1].endswith(".h") else text.splitlines()))
