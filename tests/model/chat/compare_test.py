"""Renders templates of our own with jinja2 and with Tessera: the texts must be the same, and what one refuses the other
refuses too.

  compare_test.py PROGRAM [COUNT [SEED [FOLDER]]]

  PROGRAM: render_lines; COUNT: of random templates; FOLDER: of published templates, *.jinja, to compare as well
"""

import os
import pathlib
import sys
import time
import unittest
import warnings

from features import CONVERSATIONS, DIALOGUES, GROUPS
from random_templates import RandomTemplates

from reference import Case, Outcome, by_jinja2, by_tessera, environment

PROGRAM = ""
COUNT = 1000
SEED = 1
FOLDER = ""

# What we refuse and jinja2 writes in some way: objects of Python, numbers of any size, and slices of constants that have
# none, which it works out before it runs the template.
LEFT_OUT = (
    "has no text",
    "has no slices",
    "a range is written as text only after |list",
    "does not fit into 64 bits",
    "a power is too large",
    "%d of a float is not supported",
    "only %s, %d and %% are supported",
)


def difference(case: Case, theirs: Outcome, ours: Outcome) -> str | None:
    """What to print where the two do not agree."""
    if theirs.text == ours.text:
        return None
    if ours.text is None and any(reason in ours.error for reason in LEFT_OUT):
        return None
    return f"\n  template: {case.source!r}\n  jinja2:   {theirs}\n  tessera:  {ours}"


class Comparison(unittest.TestCase):
    def compare(self, cases: list[Case]) -> int:
        """How many both render."""
        env = environment()
        expected = [by_jinja2(env, case) for case in cases]
        found = by_tessera(PROGRAM, cases)
        self.assertEqual(len(found), len(cases))
        wrong = [d for each in zip(cases, expected, found) if (d := difference(*each))]
        self.assertFalse(wrong, f"{len(wrong)} of {len(cases)} differ:" + "".join(wrong[:20]))
        return sum(outcome.text is not None for outcome in expected)

    def test_every_feature(self) -> None:
        for name, templates in GROUPS.items():
            with self.subTest(name):
                cases = [Case(source, **given) for source in templates for given in CONVERSATIONS]
                self.assertGreater(self.compare(cases), len(cases) // 3)

    def test_random_templates(self) -> None:
        make = RandomTemplates(SEED)
        cases = [Case(make.template(), **CONVERSATIONS[i % len(CONVERSATIONS)]) for i in range(COUNT)]
        self.assertGreater(self.compare(cases), COUNT // 6)

    def test_published_templates(self) -> None:
        """Templates are others' work, so none is kept here: give a folder of them."""
        if not FOLDER:
            self.skipTest("no FOLDER of published templates is given")
        given = CONVERSATIONS + DIALOGUES
        templates = sorted(pathlib.Path(FOLDER).glob("*.jinja"))
        self.assertTrue(templates, FOLDER)
        rendered = 0
        for path in templates:
            with self.subTest(path.name):
                rendered += self.compare([Case(path.read_text(), **conversation) for conversation in given])
        print(f"{len(templates)} templates, {len(templates) * len(given)} conversations: {rendered} rendered, the others refused by both")

    def test_refusals_name_line_and_column(self) -> None:
        cases = [Case("ok\n  {{ 'é' ~ (1 + 'a') }}"), Case("\n{% endif %}"), Case("{{ 'a' | nope }}")]
        places = ["line 2, column 15", "line 2, column 4", "line 1, column 10"]
        for outcome, place in zip(by_tessera(PROGRAM, cases), places):
            self.assertIn(f"chat template, {place}: ", outcome.error)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of the code that jinja2 makes of odd templates
    os.environ["TZ"] = "UTC"
    time.tzset()
    PROGRAM, *rest = sys.argv[1:]
    COUNT, SEED = (int(rest.pop(0)) if rest else default for default in (COUNT, SEED))
    FOLDER = rest.pop(0) if rest else FOLDER
    unittest.main(argv=sys.argv[:1], warnings="ignore")
