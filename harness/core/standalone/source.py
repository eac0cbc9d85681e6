"""The parts of a Python file that some of its names need, and those of the helpers that it imports."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

HELPERS = "strategies._"
"""Modules that are written out."""

OURS = ("strategy", "refusals_of")
"""Decorators that a file of its own does without."""


class Conflict(Exception):
    """Two files define one name differently, or a helper is imported by another name."""


@dataclass(frozen=True)
class Part:
    """A statement at the top of a file.

    Attributes:
        defines: the names that it gives a value.
        uses: the names that occur in it.
    """

    text: str
    defines: frozenset[str]
    uses: frozenset[str]


class Source:
    """A file as the parts that it consists of.

    Attributes:
        helpers: helper -> the names that are taken from it.
        packages: (module, name, name given to it) of what else is imported at the top; no name for a whole module.
        names: what its parts define.
    """

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.tree = ast.parse(text)
        self.helpers: dict[str, set[str]] = {}
        self.packages: list[tuple[str, str, str]] = []
        self.dropped: set[int] = set()  # numbers of the lines that import what is written out
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._read_import(node)
        self.parts = [
            Part(self._text(node), frozenset(_defined(node)), frozenset(_used(node)))
            for node in self.tree.body
            if not isinstance(node, ast.Import | ast.ImportFrom) and not _is_text(node)
        ]
        self.names = {name for part in self.parts for name in part.defines}

    def defines(self, name: str) -> bool:
        """Whether it gives that name a value."""
        return name in self.names

    def imports(self, name: str) -> bool:
        """Whether it takes that name from a helper."""
        return any(name in names for names in self.helpers.values())

    def summary(self, function: str) -> str:
        """The first line of a function's docstring."""
        node = next(node for node in self.tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
        return (ast.get_docstring(node) or "").partition("\n")[0]

    def without_imports(self) -> str:
        """The text behind the imports at the top."""
        imports = [node for node in self.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        return "\n".join(self.lines[max(node.end_lineno or 0 for node in imports) :])

    def _read_import(self, node: ast.Import | ast.ImportFrom) -> None:
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        helper = module.startswith(HELPERS)
        if module == "strategies" or (helper and any(name.asname for name in node.names)):
            raise Conflict(f"line {node.lineno} imports a helper by another name")
        if helper or module in ("pergrad", "__future__"):
            self.dropped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            if helper:
                self.helpers.setdefault(module, set()).update(name.name for name in node.names)
        elif node in self.tree.body:
            for name in node.names:
                given = (module, name.name) if module else (name.name, "")
                self.packages.append((*given, name.asname or ""))

    def _text(self, node: ast.stmt) -> str:
        """The text of a statement, without the imports of what is written out."""
        decorators = [one for one in getattr(node, "decorator_list", []) if _called(one) not in OURS]
        lines: list[str] = []
        for number in range(min([node.lineno, *(one.lineno for one in decorators)]), (node.end_lineno or 0) + 1):
            line = self.lines[number - 1]
            gap = not line.strip() and number - 1 in self.dropped and lines and not lines[-1].strip()
            if number not in self.dropped and not gap:
                lines.append(line)
        return re.sub(r'("""\n)\n+', r"\1\n", "\n".join(lines)) if self.dropped else "\n".join(lines)


class Imports:
    """What a file imports at its top."""

    def __init__(self) -> None:
        self.found: set[tuple[str, str, str]] = set()

    def add(self, source: Source) -> None:
        """All that a file imports."""
        self.found.update(source.packages)

    def text(self, code: str) -> str:
        """Those that `code` needs; Python's own first."""
        words = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
        wanted = sorted(each for each in self.found if (each[2] or each[1] or each[0].partition(".")[0]) in words)
        lines = {f"import {module}{_given(alias)}": module for module, name, alias in wanted if not name}
        for module in dict.fromkeys(module for module, name, _ in wanted if name):
            names = [f"{name}{_given(alias)}" for found, name, alias in wanted if found == module and name]
            lines[f"from {module} import {', '.join(names)}"] = module
        own = [line for line, module in lines.items() if module.partition(".")[0] in sys.stdlib_module_names]
        return "\n\n".join("\n".join(group) for group in (own, [line for line in lines if line not in own]) if group)


def collect(source: Source, first: Source, names: Sequence[str], imports: Imports) -> str:
    """The parts of a file and its helpers that `names` need, in an order that runs.

    Args:
        first: stands before the others; what it defines is not taken from them.
        imports: receives what the files import.

    Raises:
        Conflict: if two helpers define a name differently.
    """
    files = _in_order(source, first)
    meanings: dict[str, str] = {}
    for file in files:
        for part in file.parts:
            for name in part.defines - (set() if file is first else first.names):
                if meanings.setdefault(name, part.text) != part.text:
                    raise Conflict(f"two files define {name}")
    reached: set[str] = set()
    more = set(names)
    while more != reached:
        reached = more
        used = {
            name for file in files for part in file.parts if _wanted(file, first, part, reached) for name in part.uses
        }
        more = reached | (used & meanings.keys())
    for file in files:
        imports.add(file)
    texts = [part.text for file in files for part in file.parts if _wanted(file, first, part, reached)]
    return _joined(list(dict.fromkeys(texts)))


@cache
def module_source(module: str) -> Source:
    """A module's file; it is found, and not imported."""
    package, _, name = module.rpartition(".")
    found = importlib.util.find_spec(package)
    path = Path(next(iter((found and found.submodule_search_locations) or ()))) / f"{name}.py"
    return Source(path.read_text(encoding="utf-8"))


def _wanted(file: Source, first: Source, part: Part, reached: set[str]) -> bool:
    if part.defines:
        return not part.defines.isdisjoint(reached) and (file is first or not part.defines <= first.names)
    return not part.uses.isdisjoint(reached & file.names)  # a statement about what is defined here


def _in_order(source: Source, first: Source) -> list[Source]:
    """Every file that is needed: `first`, then helpers before those that use them, the strategy's last."""
    found = [first]

    def visit(file: Source) -> None:
        for helper in map(module_source, file.helpers):
            if helper not in found:
                visit(helper)
                found.append(helper)

    visit(first)
    visit(source)
    return [*found, source]


def _joined(texts: Sequence[str]) -> str:
    """Statements of one line stand together, functions and classes apart."""
    gaps = ("\n" if "\n" not in before + after else "\n\n\n" for before, after in pairwise(texts))
    return "".join(text + gap for text, gap in zip(texts, [*gaps, ""], strict=True))


def _given(alias: str) -> str:
    return f" as {alias}" if alias else ""


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _defined(node: ast.stmt) -> Iterable[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def _used(node: ast.stmt) -> set[str]:
    ours = [one for one in getattr(node, "decorator_list", []) if _called(one) in OURS]
    skipped = {id(part) for one in ours for part in ast.walk(one)}
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and id(part) not in skipped}


def _called(decorator: ast.expr) -> str:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return function.id if isinstance(function, ast.Name) else ""
