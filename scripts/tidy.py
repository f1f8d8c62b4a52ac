#!/usr/bin/env python3
"""Runs clang-tidy on many files at once, which is much faster than one by one.

  scripts/tidy.py BUILD_FOLDER FILE...

clang-tidy spends nearly all of its time in headers: for every source file, every check visits the whole standard library, fmt and
nlohmann-json again. So about sixteen sources at a time are pasted together and checked as one file, and the headers are visited
once. They are pasted, not #included, because the analyzer and the unused-* checks look only into the main file. Findings are
reported under the source's own name and line.

Two sources that define the same name in their unnamed namespaces cannot share a batch, so names are compared first. A batch that
still does not compile is checked file by file. So the result is always that of single files.
"""
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

BATCH = 16  # files; more would leave too little to do in parallel


def defined_names(text):
    """The names that a file defines, as (namespace, name): those of its unnamed namespace, and all. A name is the word before the
    first ( = { [ ; of a line without indent."""
    local, every, inside, namespace = set(), set(), False, ""
    for line in text.splitlines():
        if line in ("namespace {", "}  // namespace"):
            inside = line == "namespace {"
        elif line.startswith("namespace "):
            namespace = line
        elif re.match(r"(?!template|public:|private:|using namespace)\w", line):
            name = re.findall(r"\w+", re.split(r"[(={\[;]| : | final", line)[0])[-1]
            every.add((namespace, name))
            if inside:
                local.add((namespace, name))
    return local, every


def make_batches(files):
    """Each file goes into the first batch of its top folder that has room and no clash of a name in an unnamed namespace."""
    batches = []  # (top folder, files, unnamed, every)
    for file in files:
        local, every = defined_names(open(file, encoding="utf-8").read())
        top = file.split("/")[0]
        for other, members, unnamed, taken in batches:
            if other == top and len(members) < BATCH and not local & taken and not every & unnamed:
                members.append(file)
                unnamed |= local
                taken |= every
                break
        else:
            batches.append((top, [file], local, every))
    return [members for _, members, _, _ in batches]


def compile_flags(build):
    """file -> the flags it is compiled with, without the compiler, the output and the file itself."""
    flags = {}
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as database:
        for entry in json.load(database):
            words = shlex.split(entry["command"])
            start = next(i for i, word in enumerate(words) if word.startswith("-"))
            del words[words.index("-o") : words.index("-o") + 2]
            flags[os.path.realpath(entry["file"])] = [w for w in words[start:] if w not in ("-c", entry["file"])]
    return flags


def paste(files, path):
    """Writes the files one after the other. Returns (file, line) for each line of the result."""
    origin = []
    with open(path, "w", encoding="utf-8") as out:
        for file in files:
            for number, line in enumerate(open(file, encoding="utf-8").read().splitlines(), 1):
                out.write(line + "\n")
                origin.append((file, number))
    return origin


def check(files, flags, path):
    """Checks the files as one. Returns (compiled, ok, output of clang-tidy)."""
    origin = paste(files, path)
    known = next(flags[path] for path in map(os.path.realpath, files + list(flags)) if path in flags)
    quote = [f"-iquote{folder}" for folder in sorted({os.path.dirname(file) for file in files})]
    run = subprocess.run(
        ["clang-tidy", "--quiet", "--warnings-as-errors=*", f"--config-file={os.path.abspath('.clang-tidy')}", path, "--"]
        + known + quote, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)

    def name(match):
        file, line = origin[min(int(match.group(1)), len(origin)) - 1]
        return f"{file}:{line}"

    said = re.sub(re.escape(path) + r":(\d+)", name, run.stdout)
    return "[clang-diagnostic-error]" not in said, run.returncode == 0, said or run.stderr * (run.returncode != 0)


def check_batch(number, files, flags, folder):
    compiled, ok, said = check(files, flags, os.path.join(folder, f"batch_{number}.cc"))
    if compiled or len(files) == 1:
        return ok, said
    print(f"tidy.py: {', '.join(files)} do not compile as one file; checking one by one", flush=True)
    results = [check([file], flags, os.path.join(folder, f"batch_{number}.cc")) for file in files]
    return all(ok for _, ok, _ in results), "".join(said for _, _, said in results)


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: scripts/tidy.py BUILD_FOLDER FILE...")
    build, files = sys.argv[1], sys.argv[2:]
    flags = compile_flags(build)
    folder = os.path.abspath(os.path.join(build, "tidy"))
    os.makedirs(folder, exist_ok=True)
    good = True
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for ok, said in pool.map(lambda item: check_batch(item[0], item[1], flags, folder), enumerate(make_batches(files))):
            good = good and ok
            if said:
                print(said, flush=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
