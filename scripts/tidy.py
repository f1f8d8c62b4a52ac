#!/usr/bin/env python3
"""Runs clang-tidy on many files at once, which is much faster than one by one.

  scripts/tidy.py BUILD_FOLDER FILE...

clang-tidy spends nearly all of its time in headers: for every source file, every check visits the whole standard library, fmt and
nlohmann-json again. So some thirty sources at a time are pasted together and checked as one file, and the headers are visited
once. They are pasted, not #included, because the analyzer and the unused-* checks look only into the main file. Findings are
reported under the source's own name and line.

scripts/batches.py groups the sources. A batch that does not compile is checked file by file, so the result is always that of single
files.
"""
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from batches import make_batches

BATCH = 36  # files; more would leave too little to do in parallel
# The analyzer follows the paths through a function up to this many states, and then goes on to the next function. With its own
# limit, 225,000, a batch takes 146 s instead of 34 and has the same findings.
STATES = 20000


def top_folders(files):
    """The files of each top folder: flags differ between them."""
    folders = {}
    for file in files:
        folders.setdefault(file.split("/")[0], []).append(file)
    return folders.values()


def sources_of(file):
    """A file of a unity build stands for the sources it includes (cmake/TesseraUnity.cmake)."""
    if "/Unity/unity_" not in file:
        return [file]
    with open(file, encoding="utf-8") as unity:
        return re.findall(r'^#include "(.+)"$', unity.read(), re.MULTILINE)


def compile_flags(build):
    """file -> the flags it is compiled with, without the compiler, the output and the file itself."""
    flags = {}
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as database:
        for entry in json.load(database):
            words = shlex.split(entry["command"])
            start = next(i for i, word in enumerate(words) if word.startswith("-"))
            del words[words.index("-o") : words.index("-o") + 2]
            for source in sources_of(entry["file"]):
                flags[os.path.realpath(source)] = [w for w in words[start:] if w not in ("-c", entry["file"])]
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
    analyzer = [f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={STATES}")]
    run = subprocess.run(
        ["clang-tidy", "--quiet", "--warnings-as-errors=*", f"--config-file={os.path.abspath('.clang-tidy')}", *analyzer, path, "--"]
        + known + ["-Wno-unknown-warning-option"] + quote, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)

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
    batches = [batch for folder_files in top_folders(files) for batch in make_batches(folder_files, BATCH)]
    good = True
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for ok, said in pool.map(lambda item: check_batch(item[0], item[1], flags, folder), enumerate(batches)):
            good = good and ok
            if said:
                print(said, flush=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
