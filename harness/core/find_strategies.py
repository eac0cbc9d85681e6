"""Find all strategies: those of pergrad, those below the current folder, installed packages, plugin files.

Finding strategies imports their files but no framework, because a strategy imports its framework inside its function.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from types import ModuleType

from harness.core.framework import framework_names
from harness.core.plugins import PluginError, load_file, suggestion
from harness.core.strategy import Strategy

FOLDER = Path(__file__).resolve().parents[2] / "strategies"
LOCAL_FOLDER = Path("strategies")
"""Where `pergrad new` puts a strategy, below the current folder; in a checkout the two are the same."""

ENTRY_POINTS = "pergrad.strategies"


@dataclass(frozen=True)
class Unavailable:
    """A plugin that could not be imported: shown as a row, never a reason to stop."""

    name: str
    path: Path
    reason: str


@dataclass(frozen=True)
class Catalogue:
    """Everything discovery found, sorted by name."""

    strategies: tuple[Strategy, ...]
    unavailable: tuple[Unavailable, ...] = ()

    def names(self) -> list[str]:
        """All names, importable or not."""
        return sorted([s.name for s in self.strategies] + [u.name for u in self.unavailable])

    def measurable(self, full: bool, frameworks: Container[str]) -> list[str]:
        """The names of the strategies of the default plan, or of all that were imported, of these frameworks."""
        return [s.name for s in self.strategies if (full or not s.full_only) and s.framework in frameworks]

    def find(self, name: str) -> Strategy:
        """The strategy of that name.

        Raises:
            PluginError: if there is none; the message suggests the nearest name.
        """
        for candidate in self.strategies:
            if candidate.name == name:
                return candidate
        for broken in self.unavailable:
            if broken.name == name:
                raise PluginError(f"strategy {name} cannot be imported: {broken.reason}")
        raise PluginError(f"unknown strategy {name!r}; {suggestion(name, self.names())}")


def discover(plugins: Iterable[Path] = ()) -> Catalogue:
    """Find all strategies: those of pergrad, those below the current folder, installed entry points, plugin files.

    Raises:
        PluginError: if two plugins have one name, or a plugin file does not exist.
    """
    found: list[Strategy] = []
    broken: list[Unavailable] = []
    known = [*sorted(FOLDER.glob("*/*.py")), *_local_files(), *plugins]
    for path in {path.resolve(): path for path in known}.values():
        if path.name.startswith("_"):
            continue
        if not path.is_file():
            raise PluginError(f"plugin file {path} does not exist")
        _collect(partial(load_file, path), _name_from_path(path), path, str(path), found, broken)
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        _collect(entry.load, entry.name, Path(entry.value), entry.value, found, broken)
    return Catalogue(
        tuple(sorted(_without_repeats(found), key=lambda s: s.name)),
        tuple(sorted(broken, key=lambda u: u.name)),
    )


def _local_files() -> list[Path]:
    """Files below the current folder that declare a strategy; others may be anybody's scripts and are not executed."""
    in_framework_folders = [path for name in framework_names() for path in sorted((LOCAL_FOLDER / name).glob("*.py"))]
    return [path for path in in_framework_folders if declares_strategy(path)]


def declares_strategy(path: Path) -> bool:
    """Whether a file decorates a function with `@strategy(...)`, judged from its text; it is not executed.

    A file that cannot be parsed counts if it says so in its text: importing it will tell what is wrong with it.
    """
    try:
        text = path.read_bytes()
        tree = ast.parse(text)
    except OSError:
        return False
    except (SyntaxError, ValueError):
        return b"@strategy" in text
    decorators = [
        decorator.func if isinstance(decorator, ast.Call) else decorator
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
    ]
    return any(ast.unparse(decorator).rpartition(".")[2] == "strategy" for decorator in decorators)


def load(name: str, plugin: str) -> Strategy:
    """The strategy `name` from its file, or from its entry point given as `module:attribute`.

    Raises:
        PluginError: if the plugin does not define it (any more).
    """
    if Path(plugin).is_file():
        loaded: object = load_file(Path(plugin))
    else:
        loaded = metadata.EntryPoint(name, plugin, ENTRY_POINTS).load()
    for candidate in _strategies_in(loaded):
        if candidate.name == name:
            return candidate
    raise PluginError(f"{plugin} defines no strategy {name}")


def _collect(
    load: Callable[[], object],
    name: str,
    path: Path,
    plugin: str,
    found: list[Strategy],
    broken: list[Unavailable],
) -> None:
    try:
        loaded = load()
    except Exception as error:
        broken.append(Unavailable(name, path, f"{type(error).__name__}: {error}"))
        return
    strategies = _strategies_in(loaded)
    if not strategies:
        broken.append(Unavailable(name, path, "defines no strategy: decorate a function with @strategy(...)"))
    found.extend(replace(candidate, plugin=plugin) for candidate in strategies)


def _strategies_in(loaded: object) -> list[Strategy]:
    candidates = vars(loaded).values() if isinstance(loaded, ModuleType) else [loaded]
    return [candidate for candidate in candidates if isinstance(candidate, Strategy)]


def _without_repeats(found: list[Strategy]) -> list[Strategy]:
    """Each strategy once: one that another file imports is found there too.

    Raises:
        PluginError: if two files declare strategies of one name.
    """
    first: dict[str, Strategy] = {}
    for candidate in found:
        other = first.setdefault(candidate.name, candidate)
        if other.path.resolve() != candidate.path.resolve():
            raise PluginError(
                f"two strategies are called {candidate.name}: {other.path} and {candidate.path}; rename one function"
            )
    return list(first.values())


def _name_from_path(path: Path) -> str:
    return f"{path.parent.name}/{path.stem.replace('_', '-')}"
