#!/usr/bin/env python3
"""Checks the Markdown pages of the repository.

A page fails on a relative link (or an anchor) that leads nowhere, a line over 120 characters outside of tables and
code, an absolute path, a table's row after a blank line, or a file or folder named in backticks (`src/...`,
`tests/...`) that does not exist. History (docs/notebook and CHANGELOG.md) may name files that are gone. Some pages have
a limit of lines (MAX_LINES). Every page of results is linked from docs/results/README.md and from its machine's page.

    scripts/check_docs.py            all pages that git knows
    scripts/check_docs.py PAGE...    these
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINE = 120
MAX_LINES = {"docs/ARCHITECTURE.md": 200}
RESULTS = ROOT / "docs" / "results"
FOLDERS = ("apps", "bench", "cmake", "docs", "examples", "include", "models", "python", "scripts", "src", "tests")
HISTORY = ("docs/notebook/", "CHANGELOG.md")

LINK = re.compile(r"""(?:\]\(|src=")([^()\s"]+)""")
CODE = re.compile(r"`([^`]+)`")
REPOSITORY_PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./{{}},*-]*")
ABSOLUTE_PATH = re.compile(r"(?<![\w.~$:/<}>)*-])/(?:home|root|tmp|work|mnt|media|Users|data|scratch|workspace)/\w")
PLACEHOLDER = re.compile(r"NAME|TARGET|DIR\b|HASH|\.\.\./")  # a path to fill in


def anchor(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors_of(page: Path) -> set[str]:
    return {anchor(line.lstrip("#")) for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("#")}


def link_problem(page: Path, target: str) -> str | None:
    if re.match(r"[a-z]+:", target):  # another site
        return None
    name, _, part = target.partition("#")
    if name.startswith("/"):
        return f"link to an absolute path: {target}"
    file = (page.parent / name).resolve() if name else page
    if not file.exists() or not file.is_relative_to(ROOT):
        return f"dead link: {target}"
    if part and file.suffix == ".md" and part not in anchors_of(file):
        return f"no such heading: {target}"
    return None


def expand(path: str) -> list[str]:
    """a.{h,cc} is a.h and a.cc."""
    match = re.search(r"\{([^{}]*)\}", path)
    if not match:
        return [path]
    return [name for part in match[1].split(",") for name in expand(path[: match.start()] + part + path[match.end() :])]


def path_problems(code: str) -> list[str]:
    words = [word.rstrip(".,:") for word in code.split()]
    paths = [word for word in words if REPOSITORY_PATH.fullmatch(word) and not PLACEHOLDER.search(word)]
    return [f"no such file: {path}" for word in paths for path in expand(word) if not any(ROOT.glob(path.rstrip("/")))]


def index_problems(index: Path, pages: list[Path]) -> list[str]:
    """Pages that their index does not link to."""
    text = index.read_text(encoding="utf-8")
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in LINK.findall(text)}
    name = index.relative_to(ROOT).as_posix()
    return [f"{name}: no link to {page.relative_to(ROOT).as_posix()}" for page in pages if page not in linked]


def problems_of_results() -> list[str]:
    pages = sorted(RESULTS.rglob("*.md"))
    found = index_problems(RESULTS / "README.md", [page for page in pages if page != RESULTS / "README.md"])
    for index in sorted(RESULTS.glob("*/README.md")):
        found += index_problems(index, [page for page in pages if page.parent == index.parent and page != index])
    return found


def is_row(line: str) -> bool:
    return line.startswith("|")


def problems(page: Path) -> list[str]:
    name = page.relative_to(ROOT).as_posix()
    found: list[tuple[int, str]] = []
    in_code = False
    lines = page.read_text(encoding="utf-8").splitlines()
    if len(lines) > MAX_LINES.get(name, len(lines)):
        found.append((len(lines), f"{len(lines)} lines, at most {MAX_LINES[name]}"))
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
            continue
        if ABSOLUTE_PATH.search(line):
            found.append((number, "an absolute path"))
        if in_code:
            continue
        begins_table = number < len(lines) and re.match(r"\|[\s:|-]*-", lines[number])
        if is_row(line) and not begins_table and (number == 1 or not is_row(lines[number - 2])):
            found.append((number, "a row outside of its table"))
        if len(line) > MAX_LINE and not line.lstrip().startswith("|"):
            found.append((number, f"{len(line)} characters, at most {MAX_LINE}"))
        found += [(number, text) for target in LINK.findall(line) if (text := link_problem(page, target))]
        if not name.startswith(HISTORY):
            found += [(number, text) for code in CODE.findall(line) for text in path_problems(code)]
    return [f"{name}:{number}: {text}" for number, text in found]


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pages = [Path(p).resolve() for p in sys.argv[1:]] or [ROOT / p for p in listed.split()]
    found = [text for page in pages if page.exists() for text in problems(page)]
    found += problems_of_results()
    print("\n".join(found) if found else f"check_docs: {len(pages)} pages, nothing wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
