"""The pages of `tessera profile` and `tessera bench` in a real browser, Debian's chromium.

    report_page_test.py PROGRAM MODEL

Each page is opened without a network. It must render without a word on the console, and every number in its tables
must be the one that --json printed in the same run.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path

SKIPPED = 77  # for ctest
BROWSER = shutil.which("chromium")
PROGRAM, MODEL = (sys.argv[1:] + ["", ""])[:2]


class Page(HTMLParser):
    """What the browser made of a page: its tables, its plots, its JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[dict[str, object]]] = {}
        self.svgs = 0
        self.circles = 0
        self.texts: list[str] = []
        self.report = ""
        self.outside: list[str] = []  # what would be fetched
        self._table: list[dict[str, object]] | None = None
        self._key: str | None = None
        self._in_report = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        for name in ("src", "href"):
            if (given.get(name) or "data:").split(":")[0] != "data":
                self.outside.append(str(given[name]))
        if tag == "table":
            self._table = self.tables.setdefault(str(given["id"]), [])
        elif tag == "tr" and self._table is not None:
            self._table.append({})
        elif tag == "td" and self._table is not None:
            self._key = given.get("data-key")
            if self._key and given.get("data-value") is not None:
                self._table[-1][self._key] = json.loads(str(given["data-value"]))
                self._key = None
        elif tag == "svg":
            self.svgs += 1
        elif tag == "circle":
            self.circles += 1
        elif tag == "script":
            self._in_report = given.get("id") == "report"

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self._key = None
        elif tag == "table":
            self._table = None
        elif tag == "script":
            self._in_report = False

    def handle_data(self, data: str) -> None:
        if self._in_report:
            self.report += data
        elif self._key and self._table:
            row = self._table[-1]
            row[self._key] = str(row.get(self._key, "")) + data
        self.texts.append(data)

    def rows(self, table: str) -> list[dict[str, object]]:
        return [row for row in self.tables[table] if row]  # without the head


def browse(path: Path, *options: str) -> tuple[str, str]:
    """The page as the browser has it after loading, and what it wrote to its console."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}",
             "--enable-logging=stderr", *options, path.as_uri()],
            capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def tessera(*arguments: str) -> dict:
    done = subprocess.run([PROGRAM, *arguments, "--device", "cpu", "--threads", "2", "--json"],
                          capture_output=True, text=True, timeout=240, check=True)
    return json.loads(done.stdout)


class ReportPages(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "page.html"

    def open(self) -> Page:
        dom, console = browse(self.path, "--dump-dom")
        self.assertEqual(console, "")
        page = Page()
        page.feed(dom)
        self.assertEqual(page.outside, [])
        return page

    def assert_renders(self) -> None:
        """In light and in dark: a picture each, and not the same one."""
        pictures = []
        for scheme in ("1", "0"):
            picture = self.path.with_name(f"page{scheme}.png")
            browse(self.path, f"--screenshot={picture}", "--window-size=1200,1600",
                   f"--blink-settings=preferredColorScheme={scheme}")
            pictures.append(picture.read_bytes())
        self.assertGreater(min(map(len, pictures)), 20_000)
        self.assertNotEqual(pictures[0], pictures[1])

    def assert_rows(self, shown: list[dict[str, object]], expected: list[dict[str, object]]) -> None:
        self.assertEqual(len(shown), len(expected))
        for row, wanted in zip(shown, expected, strict=True):
            for key, value in row.items():
                self.assertEqual(value, wanted[key], key)

    def test_profile(self) -> None:
        report = tessera("profile", "--model", MODEL, "--prompt-len", "40", "--gen-len", "8", "--repeat", "3",
                         "--html", str(self.path))
        page = self.open()
        self.assertEqual(json.loads(page.report), report)
        for phase in ("prefill", "decode"):
            rows = page.rows(phase)
            self.assert_rows(rows, report[phase]["rows"])
            self.assertEqual(set(rows[0]), set(report[phase]["rows"][0]))  # no column is left out
            self.assertIn("gaps", [row["op"] for row in rows])
            self.assert_rows(page.rows(phase + "-layers"), report["layers"][phase])
        self.assertEqual(page.svgs, 4)
        self.assertGreaterEqual(page.circles, 4)  # linear and attention, twice
        self.assert_renders()

    def test_bench_beside_peers(self) -> None:
        peers = self.path.with_name("peers.json")
        peers.write_text(json.dumps({"peers": [{"name": "<other & co>", "test": "tg128", "tokens_per_second": 1.5}]}))
        report = tessera("bench", "decode", "--quick", "--model", MODEL, "--html", str(self.path), "--peers", str(peers))
        page = self.open()
        self.assertEqual(json.loads(page.report), report)
        self.assert_rows(page.rows("models"), report["models"])
        self.assertIn("<other & co>", page.texts)
        ours = next(row["tokens_per_second"] for row in report["models"] if row["test"] == "tg128")
        self.assertTrue(any(text.endswith(f"{1.5 / ours:.2f}x") for text in page.texts))

    def test_bench_of_ops(self) -> None:
        report = tessera("bench", "norm", "--quick", "--html", str(self.path))
        page = self.open()
        self.assert_rows(page.rows("ops"), report["ops"])
        self.assert_renders()


if __name__ == "__main__":
    if BROWSER is None:
        print("skipped: chromium is not installed")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
