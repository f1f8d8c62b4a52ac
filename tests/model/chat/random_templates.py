"""Small templates from a grammar."""

import random

NAMES = ["messages", "x", "y", "s", "n", "items", "missing", "tools", "m"]
STRINGS = ["''", "'a'", "'Ab c'", "' x '", "'héé\\n'", "'a,b,,c'", "\"it's\"", "'<|end|>'", "'12'"]
NUMBERS = ["0", "1", "2", "-3", "7", "1.5", "0.1", "10"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", "in", "not in", "and", "or"]
FILTERS = [
    "trim", "length", "upper", "lower", "capitalize", "title", "string", "list", "first", "last", "join('-')", "join",
    "tojson", "tojson(indent=1)", "default('d')", "default('d', true)", "replace('a', 'bb')", "int", "float", "abs",
    "sort", "reverse", "unique | list", "map('string') | list", "select | list", "map(attribute='role') | list",
    "selectattr('role') | list", "rejectattr('content') | list", "sum", "min", "max", "batch(2) | list", "items | list",
    "reject('none') | list", "select('string') | list", "indent(2)", "round", "dictsort",
]
TESTS = [
    "defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "boolean", "true",
    "odd", "even", "divisibleby 2", "equalto 1", "in [1, 'a']", "lower", "upper", "sameas none", "float", "false",
]
METHODS = [
    "strip()", "lstrip('a')", "rstrip()", "split(',')", "split()", "split(' ', 1)", "upper()", "lower()", "title()",
    "startswith('a')", "endswith(' ')", "replace('a', '-')", "find('c')", "count('a')", "get('role')", "items() | list",
    "keys() | list", "splitlines()", "rsplit(',', 1)", "partition(',')", "isdigit()", "join(['p', 'q'])", "capitalize()",
]
SLICES = ["[0]", "[-1]", "[1:]", "[:-1]", "[::-1]", "[::2]", "['role']", ".content", ".role", "[5]", "[1:3]", "[-2:]"]
SPACES = ["", " ", "\n", "\n  ", "  \n", "text ", "é\n\n"]


class RandomTemplates:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, choices: list[str]) -> str:
        return self.random.choice(choices)

    def expression(self, depth: int) -> str:
        if depth == 0:
            return self.pick([self.pick(NAMES), self.pick(STRINGS), self.pick(NUMBERS), "none", "true", "[]", "{}"])
        inner = self.expression(depth - 1)
        match self.random.randrange(12):
            case 0 | 1:
                return f"({inner} {self.pick(BINARY)} {self.expression(depth - 1)})"
            case 2 | 3 | 4:
                return f"({inner}) | {self.pick(FILTERS)}"
            case 5:
                return f"({inner} is {self.pick(['', 'not '])}{self.pick(TESTS)})"
            case 6:
                return f"({inner}).{self.pick(METHODS)}"
            case 7 | 8:
                return f"({inner}){self.pick(SLICES)}"
            case 9:
                return f"({inner} if {self.expression(depth - 1)} else {self.expression(depth - 1)})"
            case 10:
                return f"[{inner}, {self.expression(depth - 1)}]"
            case _:
                return self.pick([f"(not {inner})", f"(-{inner})", "{'k': " + inner + "}", f"({inner},)"])

    def tag(self, inside: str, kind: str = "%") -> str:
        left = self.pick(["", "", "-", "+" if kind == "%" else ""])
        right = self.pick(["", "", "-", "+" if kind == "%" else ""])
        opened, closed = ("{%", "%}") if kind == "%" else ("{{", "}}")
        return f"{opened}{left} {inside} {right}{closed}"

    def body(self, depth: int) -> str:
        return "".join(self.statement(depth) for _ in range(self.random.choice([1, 1, 2])))

    def statement(self, depth: int) -> str:
        space = self.pick(SPACES)
        if depth == 0 or self.random.random() < 0.4:
            return space + self.tag(self.expression(self.random.choice([1, 1, 2, 3])), "{") + self.pick(SPACES)
        inner = self.body(depth - 1)
        match self.random.randrange(7):
            case 0:
                branches = self.tag("else") + self.body(depth - 1) if self.random.random() < 0.5 else ""
                return space + self.tag(f"if {self.expression(2)}") + inner + branches + self.tag("endif")
            case 1 | 2:
                test = f" if {self.expression(1)}" if self.random.random() < 0.3 else ""
                stop = "{% if loop.index > 1 %}{% break %}{% endif %}"
                loop = self.pick(["", "{{ loop.index }}", "{{ loop.last }}", "{{ loop.length }}", stop])
                what = self.pick(["messages", "[1, 2, 'a']", "s", f"{self.expression(1)}"])
                start = self.tag(f"for {self.pick(['x', 'm', 'y'])} in {what}{test}")
                return space + start + loop + inner + self.tag("endfor")
            case 3:
                return space + self.tag(f"set {self.pick(['x', 'y', 's', 'n'])} = {self.expression(2)}")
            case 4:
                return space + self.tag(f"set {self.pick(['x', 's'])}") + inner + self.tag("endset")
            case 5:
                call = self.tag(f"f({self.expression(1)})", "{")
                return space + self.tag(f"macro f(m, n={self.expression(1)})") + inner + self.tag("endmacro") + call
            case _:
                start = self.tag(f"filter {self.pick(['upper', 'trim', 'indent(2)'])}")
                return space + start + inner + self.tag("endfilter")

    def template(self) -> str:
        start = "{% set s = ' Hé, a' %}{% set n = 3 %}{% set items = [1, 'b', none] %}"
        return start + self.body(self.random.choice([0, 1, 1, 2]))
