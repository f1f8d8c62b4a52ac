"""Holds the order of the layers that layers.txt writes down, include line by include line."""

import re
import sys
import tempfile
import unittest
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCES = {".h", ".cc", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
BACK_END_NAME = re.compile(r"\b(cpu|cuda)::|\bnamespace\s+(tessera::)?(cpu|cuda)\b")


@dataclass
class Order:
    """layers.txt: the level of each layer, the layer of each public header."""

    level: dict[str, int] = field(default_factory=dict)
    layer_of_header: dict[str, str] = field(default_factory=dict)
    aside: set[str] = field(default_factory=set)

    @property
    def top(self) -> int:
        return max(self.level.values())


def read_order(text: str) -> Order:
    order = Order()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for number, line in enumerate(lines):
        for name, star, headers in re.findall(r"(\w+)(\*?)(?:\s*\(([^)]*)\))?", line):
            order.level[name] = number
            if star:
                order.aside.add(name)
            for header in headers.split():
                order.layer_of_header[f"tessera/{header}.h"] = name
    return order


def includes(file: Path) -> Iterator[tuple[int, str, str]]:
    """Line number, kind of bracket and path of each include."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if match := INCLUDE.match(line):
            yield number, match[1], match[2]


def sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in SOURCES)


def layer_of_include(order: Order, path: str) -> str | None:
    if path.startswith("tessera/"):
        return order.layer_of_header.get(path)
    folder = path.split("/", 1)[0]
    return folder if "/" in path and folder in order.level else None


def complaint(order: Order, user: str, path: str) -> str | None:
    """What is wrong with `path` being included by a file of the layer `user`."""
    used = layer_of_include(order, path)
    if used is None:
        return f"{user} includes {path}, which belongs to no layer of layers.txt"
    if used == user:
        return None
    if order.level[used] > order.level[user]:
        return f"{user} includes {path} of {used}, a higher layer"
    if order.level[used] == order.level[user]:
        return f"{user} includes {path} of {used}, its neighbour"
    if used in order.aside and order.level[user] < order.top:
        return f"{user} includes {path} of {used}, which is for apps, tests and examples only"
    return None


def check_layers(root: Path, order: Order) -> list[str]:
    """Every quoted include of src, apps and python, and every public header."""
    wrong = []
    files = [(file, folder.name) for folder in (root / "src").iterdir() if folder.is_dir() for file in sources(folder)]
    files += [(file, name) for name in ("apps", "python") for file in sources(root / name)]
    for file in sources(root / "include"):
        files.append((file, order.layer_of_header.get(f"tessera/{file.name}", "")))
    for file, layer in files:
        name = file.relative_to(root)
        if layer not in order.level:
            wrong.append(f"{name}: layers.txt names no layer for it")
            continue
        for number, bracket, path in includes(file):
            beside = "/" not in path and (file.parent / path).exists()
            if bracket == '"' and not beside and (what := complaint(order, layer, path)):
                wrong.append(f"{name}:{number}: {what}")
    return wrong


def check_public(root: Path) -> list[str]:
    """Public headers include the standard library and each other, and name no back end. Examples include no more."""
    wrong = []
    for file in sources(root / "include"):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if BACK_END_NAME.search(line):
                wrong.append(f"{file.relative_to(root)}:{number}: a public header names a back end: {line.strip()}")
    for file in sources(root / "include") + sources(root / "examples" / "cpp"):
        for number, bracket, path in includes(file):
            standard = bracket == "<" and "." not in path and "/" not in path
            if not standard and not path.startswith("tessera/"):
                wrong.append(f"{file.relative_to(root)}:{number}: includes {path}, which is not installed with Tessera")
    return wrong


def check_threads(root: Path) -> list[str]:
    """Every public header says, before its first line of code, what threads may share."""
    wrong = []
    for file in sources(root / "include"):
        opening = file.read_text(encoding="utf-8").split("#pragma once", 1)[0]
        if not re.search(r"^// Threads: ", opening, re.MULTILINE):
            wrong.append(f"{file.relative_to(root)}: its opening comment has no line that begins with 'Threads: '")
    return wrong


class Layers(unittest.TestCase):
    maxDiff = None

    def setUp(self) -> None:
        self.order = read_order((HERE / "layers.txt").read_text(encoding="utf-8"))

    def test_every_include_of_the_tree_points_down(self) -> None:
        self.assertEqual("\n".join(check_layers(ROOT, self.order)), "")

    def test_public_headers_and_examples_need_only_what_is_installed(self) -> None:
        self.assertEqual("\n".join(check_public(ROOT)), "")

    def test_every_public_header_says_what_threads_may_share(self) -> None:
        self.assertEqual("\n".join(check_threads(ROOT)), "")

    def test_every_public_header_of_the_list_exists(self) -> None:
        headers = {f"tessera/{file.name}" for file in sources(ROOT / "include")}
        self.assertEqual(set(self.order.layer_of_header) - headers, set())

    def test_the_order_is_the_one_that_was_decided(self) -> None:
        below = ["core", "quant", "cpu", "ops", "modules", "model", "engine", "server", "apps"]
        levels = [self.order.level[layer] for layer in below]
        self.assertEqual(levels, sorted(set(levels)))
        for one, other in (("cpu", "cuda"), ("modules", "cache"), ("apps", "python")):
            self.assertEqual(self.order.level[one], self.order.level[other])
        self.assertEqual(self.order.aside, {"reference", "profile"})


class MadeUpTrees(unittest.TestCase):
    """A test that can fail: each wrong include of a made-up tree is found, and each right one is not."""

    def complaints(self, path: str, text: str) -> list[str]:
        order = read_order((HERE / "layers.txt").read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "src").mkdir()
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
            return check_layers(root, order) + check_public(root) + check_threads(root)

    def test_wrong_ones_are_found(self) -> None:
        for path, text, what in (
            ("src/core/a.h", '#include "model/b.h"', "core includes model/b.h of model, a higher layer"),
            ("src/cpu/a/b.cc", '#include "cuda/c.h"', "cpu includes cuda/c.h of cuda, its neighbour"),
            ("src/cuda/a/b.cuh", '  # include "cpu/c.h"', "cuda includes cpu/c.h of cpu, its neighbour"),
            ("src/quant/a.cc", '#include "tessera/model.h"', "quant includes tessera/model.h of model, a higher layer"),
            ("src/model/a.cc", '#include "tessera/tessera.h"', "of engine, a higher layer"),
            ("src/engine/a.cc", '#include "reference/b.h"', "which is for apps, tests and examples only"),
            ("src/ops/a.cc", '#include "support/b.h"', "which belongs to no layer"),
            ("src/attic/a.cc", "", "src/attic/a.cc: layers.txt names no layer for it"),
            ("include/tessera/tensor.h", '#include "tessera/model.h"', "of model, a higher layer"),
            ("include/tessera/brand_new.h", "", "layers.txt names no layer for it"),
            ("include/tessera/tensor.h", "#include <fmt/format.h>", "which is not installed with Tessera"),
            ("include/tessera/tensor.h", "namespace cuda { class State; }", "a public header names a back end"),
            ("include/tessera/tensor.h", "std::unique_ptr<cpu::Draw> draw;", "a public header names a back end"),
            ("include/tessera/tensor.h", "// A view.\n#pragma once\n// Threads: late", "begins with 'Threads: '"),
            ("examples/cpp/a.cc", '#include "core/fail.h"', "which is not installed with Tessera"),
        ):
            with self.subTest(path=path, text=text):
                found = self.complaints(path, text)
                self.assertTrue(any(what in line for line in found), found)

    def test_right_ones_are_not(self) -> None:
        for path, text in (
            ("src/cuda/linear/a.cu", '#include "cuda/tile/b.cuh"\n#include "tessera/linear.h"\n#include <cuda.h>'),
            ("src/reference/a.cc", '#include "model/b.h"'),
            ("apps/tessera/a.cc", '#include "reference/b.h"'),
            (
                "include/tessera/tensor.h",
                '// Threads: any.\n#pragma once\n#include <array>\n#include "tessera/device.h"\nDevice::cuda();',
            ),
            ("examples/cpp/a.cc", '#include "tessera/tessera.h"'),
        ):
            with self.subTest(path=path, text=text):
                self.assertEqual(self.complaints(path, text), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=1)
