"""Groups C++ sources into batches that compile as one file. scripts/tidy.py checks them and cmake/TesseraUnity.cmake builds them that way.

  scripts/batches.py SIZE FILE...      prints "number file" for each file

A small source spends most of its time in headers: the standard library, fmt, nlohmann-json, GoogleTest. A batch of sources reads
them once. Two sources that define the same name in their unnamed namespaces cannot share a batch, so names are compared first.
"""

import re
import sys


def name_of(line: str) -> str:
    """The name that a line without indent defines: the word before the first ( = { [ ; or, for a macro such as TEST, its words.
    A member keeps its class in front: Model::forward."""
    macro = re.match(r"([A-Z][A-Z_]+)\(([^)]*)", line)
    if macro:
        return macro.group(1) + ":" + macro.group(2)
    line = re.sub(r"__launch_bounds__\([^()]*\)", "", line)  # __global__ void __launch_bounds__(kThreads) f(): the name is f
    while "<" in line and line != (shorter := re.sub(r"<[^<>]*>", "", line)):
        line = shorter  # std::function<void(int)> f(): the name is f
    words = re.findall(r"\w+(?:::~?\w+)*", re.split(r"[(={\[;]| : | final", line)[0])
    return words[-1].split("::")[-1] if line.startswith("using ") and words else words[-1] if words else ""


def defined_names(text: str) -> tuple[dict, dict]:
    """The names that a file defines, as (namespace, name): those of its unnamed namespaces, and all. The value of a name is its
    line if that may appear twice in one file, as a using may, and empty otherwise."""
    local, every, inside, namespace = {}, {}, False, ""
    for line in text.splitlines():
        if line in ("namespace {", "}  // namespace"):
            inside = line == "namespace {"
        elif re.match(r"namespace [\w:]+ {", line):
            namespace = line
        elif re.match(r"(?!template|public:|private:|using namespace|namespace|static_assert)\w", line):
            # A line of constants may define several: constexpr int a = 1, b = 2;
            constants = re.findall(r"[ ,](\w+) = ", line) if line.startswith(("const ", "constexpr ")) else []
            for name in [(namespace, word) for word in constants or [name_of(line)]]:
                every[name] = line if line.startswith("using ") and line.endswith(";") else ""
                if inside:
                    local[name] = every[name]
    return local, every


def clash(local: dict, every: dict) -> bool:
    """Whether a name of unnamed namespaces means something else in another file."""
    return any(name in every and not (line and line == every[name]) for name, line in local.items())


def make_batches(files: list[str], size: int) -> list[list[str]]:
    """Each file goes into the first batch that has room and no clash of a name in an unnamed namespace."""
    batches: list[tuple[list, dict, dict]] = []  # files, names of unnamed namespaces, all names
    for file in files:
        with open(file, encoding="utf-8") as source:
            local, every = defined_names(source.read())
        for members, unnamed, taken in batches:
            if len(members) < size and not clash(local, taken) and not clash(unnamed, every):
                members.append(file)
                unnamed |= local
                taken |= every
                break
        else:
            batches.append(([file], local, every))
    return [members for members, _, _ in batches]


def main() -> None:
    if len(sys.argv) < 3 or not sys.argv[1].isdigit():
        sys.exit("usage: scripts/batches.py SIZE FILE...")
    for number, members in enumerate(make_batches(sys.argv[2:], int(sys.argv[1]))):
        for file in members:
            print(number, file)


if __name__ == "__main__":
    main()
