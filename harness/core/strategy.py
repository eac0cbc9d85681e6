"""The plugin interface: what a strategy is, and how strategies are found.

Finding strategies imports their files but no framework, because a strategy imports its framework inside its
function.
"""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.core.problem import Step

FRAMEWORKS = ("tf1", "tf2", "jax", "torch", "numpy")
QUANTITIES = {
    "gradients": "one row per instance: {name: (B, *parameter.shape)}",
    "norms": "the L2 norm of each instance's whole gradient: {'norms': (B,)}",
    "weighted_sum": "sum of weight x gradient over the instances: {name: parameter.shape}",
    "clipped_sum": "sum of the gradients, each scaled by min(1, clip_norm / norm): {name: parameter.shape}",
}
"""Quantity -> what a step returns for it."""

INTERFACE = 1
"""Version of the interface of strategies and workloads; raised when a plugin that worked would not work any more."""

DEVICES = ("cpu", "gpu")
FOLDER = Path(__file__).resolve().parent.parent / "strategies"
LOCAL_FOLDER = Path("strategies")
"""Where `pergrad new` puts a strategy, below the current folder; in a checkout the two are the same."""

ENTRY_POINTS = "pergrad.strategies"

Build = Callable[[Any], Step]


class Unsupported(Exception):
    """Raised by a strategy that cannot do what is asked; the reason is shown in the report, not as a failure."""


class PluginError(Exception):
    """A plugin that contradicts the interface or another plugin; the message says which and what to do."""


@dataclass(frozen=True)
class Strategy:
    """One way to compute per-instance gradients in one framework.

    Attributes:
        name: `<framework>/<function-name>`, such as `jax/vmap`.
        framework: one of `tf1`, `tf2`, `jax`, `torch`, `numpy`.
        build: receives a `Problem` and returns `step(batch) -> gradients`; its time is the build time.
        quantity: what `step` returns, one of `QUANTITIES`.
        source: where the idea comes from.
        requires: packages needed beyond the framework itself.
        devices: kinds of device it runs on.
        reuses_output: whether a call may overwrite what earlier calls returned.
        environment: variables that its worker needs before the framework is imported.
        full_only: whether it is left out of the default plan and measured with `--full` or by name.
        path: the file it was defined in.
        plugin: how a worker finds it again: that file, or an entry point as `module:attribute`.
    """

    name: str
    framework: str
    build: Build
    quantity: str
    source: str
    requires: tuple[str, ...]
    devices: tuple[str, ...]
    path: Path
    plugin: str = ""
    reuses_output: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    full_only: bool = False

    @property
    def docstring(self) -> str:
        """The explanation that the report prints."""
        return inspect.getdoc(self.build) or ""

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return self.docstring.partition("\n")[0]

    @property
    def code(self) -> str:
        """The text of the strategy's file."""
        return self.path.read_text(encoding="utf-8")


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

    def measurable(self, full: bool) -> list[str]:
        """The names of the strategies of the default plan, or of all that were imported."""
        return [s.name for s in self.strategies if full or not s.full_only]

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


def strategy(
    *,
    framework: str,
    source: str = "",
    quantity: str = "gradients",
    requires: Sequence[str] = (),
    devices: Sequence[str] = DEVICES,
    reuses_output: bool = False,
    environment: Mapping[str, str] | None = None,
    full_only: bool = False,
    interface: int = INTERFACE,
) -> Callable[[Build], Strategy]:
    """Declare a function to be a strategy; the keywords are the attributes of `Strategy`.

    The function receives a `Problem` and returns `step(batch)`, which returns what the quantity says (`QUANTITIES`):
    for `gradients` a dict with an array (B, *parameter.shape) for every parameter, in the parameters' dtype, or a
    list of B dicts without that axis. It imports its framework inside, and raises `Unsupported` for what it cannot
    do. A package that is not part of pergrad states the version of the interface it was written for.

    Example::

        @strategy(framework="jax", source="JAX documentation: per-example gradients")
        def vmap(problem: Problem) -> Step:
            \"\"\"Differentiate one instance, let the compiler vectorise over the batch.\"\"\"
            import jax

            gradients = jax.jit(jax.vmap(jax.grad(problem.loss), in_axes=(None, 0)))
            return lambda batch: gradients(problem.parameters, batch)

    Raises:
        PluginError: if a keyword has a value outside the interface, or the plugin is for another version of it.
    """
    check_interface(interface)
    for given, allowed, keyword in (
        ((framework,), FRAMEWORKS, "framework"),
        ((quantity,), tuple(QUANTITIES), "quantity"),
        (tuple(devices), DEVICES, "devices"),
    ):
        for value in given:
            if value not in allowed:
                raise PluginError(f"{keyword}={value!r} is not one of {', '.join(allowed)}")

    def declare(build: Build) -> Strategy:
        return Strategy(
            name=f"{framework}/{build.__name__.replace('_', '-')}",
            framework=framework,
            build=build,
            quantity=quantity,
            source=source,
            requires=tuple(requires),
            devices=tuple(devices),
            path=Path(inspect.getfile(build)),
            reuses_output=reuses_output,
            environment=tuple((environment or {}).items()),
            full_only=full_only,
        )

    return declare


def check_interface(version: int) -> None:
    """Refuse a plugin that was written for another version of the interface.

    Raises:
        PluginError: if it was.
    """
    if version != INTERFACE:
        newer = "pergrad" if version > INTERFACE else "version of the plugin"
        raise PluginError(
            f"written for version {version} of pergrad's plugin interface, and this pergrad has version {INTERFACE}: "
            f"install a newer {newer}"
        )


def discover(plugins: Iterable[Path] = ()) -> Catalogue:
    """Find all strategies: those of pergrad, those below the current folder, installed entry points, plugin files.

    Raises:
        PluginError: if two plugins have one name, or a plugin file does not exist.
    """
    found: list[Strategy] = []
    broken: list[Unavailable] = []
    known = [*sorted(FOLDER.glob("*/*.py")), *sorted(LOCAL_FOLDER.glob("*/*.py")), *plugins]
    for path in {path.resolve(): path for path in known}.values():
        if path.name.startswith("_"):
            continue
        if not path.is_file():
            raise PluginError(f"plugin file {path} does not exist")
        _collect(partial(load_file, path), _name_from_path(path), path, str(path), found, broken)
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        _collect(entry.load, entry.name, Path(entry.value), entry.value, found, broken)
    _refuse_duplicates(found)
    return Catalogue(
        tuple(sorted(found, key=lambda s: s.name)),
        tuple(sorted(broken, key=lambda u: u.name)),
    )


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


def load_file(path: Path) -> ModuleType:
    """Import one strategy file under a name of its own, whatever is called the same elsewhere."""
    name = "pergrad_plugin_" + re.sub(r"\W", "_", str(path.resolve()))
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def suggestion(name: str, known: Iterable[str]) -> str:
    """A phrase that helps after an unknown name: the nearest one, or all that exist."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(known)}"


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


def _refuse_duplicates(found: list[Strategy]) -> None:
    first: dict[str, Strategy] = {}
    for candidate in found:
        other = first.setdefault(candidate.name, candidate)
        if other is not candidate:
            raise PluginError(
                f"two strategies are called {candidate.name}: {other.path} and {candidate.path}; rename one function"
            )


def _name_from_path(path: Path) -> str:
    return f"{path.parent.name}/{path.stem.replace('_', '-')}"
