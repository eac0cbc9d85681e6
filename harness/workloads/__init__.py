"""What is differentiated: a workload is a module with three functions, written once for all frameworks.

- `losses(ops, parameters, batch)` -> per-instance losses, shape (B,), through the thin namespace `harness.ops`;
- `parameters(rng)` -> `{name: array}` in NumPy; integers among them are state: handed to `losses`, not differentiated;
- `batch(rng, size)` -> `{name: array}` in NumPy, the first axis of each being the instance.

Randomness is data: whatever a loss would draw comes with the batch, so every framework sees the same draw.
Two things are optional. `layouts()` -> `{name: layout}` for images, kernels and the like (`harness.layouts`).
`SMALL` is a value that the functions other than `losses` take as their last argument instead of a default: the
sizes of a variant for tests.

A module may be written for some frameworks only, with `frameworks = ("torch",)` at its top. Then there is no
`ops`: the function is `losses(parameters, batch)`, and the module is imported nowhere but in a process of that
framework, so it may import it.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from harness.layouts import Layout
from harness.problem import Losses
from harness.strategies import FRAMEWORKS, PluginError, load_file, suggestion

FOLDER = Path(__file__).resolve().parent
ENTRY_POINTS = "pergrad.workloads"
SMALL = "-small"

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Workload:
    """A model, its loss, its parameters and its batches.

    The attributes `losses`, `parameters` and `batch` are the functions described at the top of this module;
    `losses` takes `ops` in any case.

    Attributes:
        source: what `find` takes to find it again in another process: a name or an absolute path.
        frameworks: the frameworks whose strategies can run it.
        layouts: canonical layouts of those parameters and inputs that PyTorch orders differently.
    """

    name: str
    losses: Losses
    parameters: Callable[[np.random.Generator], Arrays]
    batch: Callable[[np.random.Generator, int], Arrays]
    docstring: str
    path: Path
    source: str = ""
    frameworks: tuple[str, ...] = FRAMEWORKS
    layouts: Mapping[str, Layout] = field(default_factory=dict)

    @property
    def through_ops(self) -> bool:
        """Whether it is written through `ops`, for all frameworks, so that it can be read without loading one."""
        return self.frameworks == FRAMEWORKS

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return self.docstring.partition("\n")[0]

    @property
    def code(self) -> str:
        """The text of the workload's file."""
        return self.path.read_text(encoding="utf-8")

    def initial_parameters(self, seed: int) -> Arrays:
        """The parameters that every strategy starts from, float64; the same for the same seed."""
        return self.parameters(_generator(seed, self.name))

    def batches(self, seed: int, size: int, count: int) -> list[Arrays]:
        """`count` different batches of `size` instances; the same for the same seed."""
        return [self.batch(_generator(seed, self.name, size, number), size) for number in range(count)]


def builtin() -> list[Workload]:
    """The workloads that come with pergrad, sorted by name."""
    return [find(name) for name in sorted(_builtin_paths())]


def find(name_or_path: str | Path, small: bool = False) -> Workload:
    """The workload of that name, built in or from an installed entry point, or the one in that file.

    `small` asks for the variant for tests, which is also found as `<name>-small`; a workload that has none is tiny
    itself.

    Raises:
        PluginError: if there is none, or it contradicts the interface; the message says what to do.
    """
    given = str(name_or_path)
    builtin_paths = _builtin_paths()
    installed = {entry.name: entry for entry in metadata.entry_points(group=ENTRY_POINTS)}
    name = given.removesuffix(SMALL)
    small = small or name != given
    if name in builtin_paths:
        return load(builtin_paths[name], small=small)
    if name in installed:
        return _load_entry_point(installed[name], small)
    if given.endswith(".py"):
        return load(Path(given), small=small)
    known = [*builtin_paths, *installed]
    raise PluginError(f"unknown workload {given!r}; {suggestion(given, known)} A file's path ends in .py")


def load(path: Path, small: bool = False) -> Workload:
    """Read a workload from its file. The file is executed only if it is written through `ops`.

    Raises:
        PluginError: if the file does not exist, or lacks one of the three functions.
    """
    if not path.is_file():
        raise PluginError(f"workload file {path} does not exist")
    name = path.stem.replace("_", "-")
    is_builtin = path.resolve().parent == FOLDER
    return _read(name, name if is_builtin else str(path.resolve()), path, partial(load_file, path), small)


def cast(arrays: Mapping[str, np.ndarray[Any, Any]], dtype: str) -> Arrays:
    """The arrays with every floating one converted to `dtype`; integers stay as they are.

    Raises:
        PluginError: if `dtype` is bfloat16 and the package ml_dtypes, which teaches it to NumPy, is missing.
    """
    if dtype == "bfloat16":
        try:
            importlib.import_module("ml_dtypes")
        except ImportError as error:
            raise PluginError("NumPy knows bfloat16 only through the package ml_dtypes: install it") from error
    return {name: value.astype(dtype) if is_floating(value) else value for name, value in arrays.items()}


def is_floating(array: np.ndarray[Any, Any]) -> bool:
    """Whether the array holds floating-point numbers, bfloat16 included, which NumPy itself does not know."""
    return np.issubdtype(array.dtype, np.floating) or array.dtype.name == "bfloat16"


def split(parameters: Mapping[str, np.ndarray[Any, Any]]) -> tuple[Arrays, Arrays]:
    """(what is differentiated, what is state): floating-point parameters and the others."""
    floats = {name: value for name, value in parameters.items() if is_floating(value)}
    return floats, {name: value for name, value in parameters.items() if name not in floats}


def _builtin_paths() -> dict[str, Path]:
    return {path.stem.replace("_", "-"): path for path in FOLDER.glob("*.py") if not path.name.startswith("_")}


def _load_entry_point(entry: metadata.EntryPoint, small: bool) -> Workload:
    try:
        spec = importlib.util.find_spec(entry.module)
    except ImportError as error:
        raise PluginError(f"workload {entry.name} cannot be imported: {error}") from error
    if spec is None or spec.origin is None:
        raise PluginError(f"workload {entry.name} cannot be imported: there is no module {entry.module}")
    return _read(entry.name, entry.name, Path(spec.origin), partial(importlib.import_module, entry.module), small)


def _read(name: str, source: str, path: Path, import_module: Callable[[], ModuleType], small: bool) -> Workload:
    """Build the workload from what its file says; the module is imported now only if it needs no framework."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise PluginError(f"workload {path} is not valid Python: line {error.lineno}: {error.msg}") from error
    defined = _defined(tree)
    if missing := [function for function in ("losses", "parameters", "batch") if function not in defined]:
        raise PluginError(f"workload {path} lacks the function(s) {', '.join(missing)}")
    docstring = inspect.cleandoc(ast.get_docstring(tree) or "")
    frameworks = _frameworks(tree, path)
    small = small and "SMALL" in defined
    name, source = (name + SMALL, source + SMALL) if small and source == name else (name, source)
    if frameworks != FRAMEWORKS:
        return Workload(
            name=name,
            losses=lambda ops, parameters, batch: import_module().losses(parameters, batch),
            parameters=lambda rng: import_module().parameters(rng, *_sizes(import_module(), small)),
            batch=lambda rng, size: import_module().batch(rng, size, *_sizes(import_module(), small)),
            docstring=docstring,
            path=path,
            source=source,
            frameworks=frameworks,
        )
    module = import_module()
    sizes = _sizes(module, small)
    return Workload(
        name=name,
        losses=module.losses,
        parameters=lambda rng: module.parameters(rng, *sizes),
        batch=lambda rng, size: module.batch(rng, size, *sizes),
        docstring=docstring,
        path=path,
        source=source,
        layouts=module.layouts(*sizes) if "layouts" in defined else {},
    )


def _sizes(module: ModuleType, small: bool) -> tuple[Any, ...]:
    return (module.SMALL,) if small else ()


def _defined(tree: ast.Module) -> set[str]:
    """Names that a module defines at its top level."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def _frameworks(tree: ast.Module, path: Path) -> tuple[str, ...]:
    """The value of `frameworks` at the top level of a module, all frameworks if there is none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "frameworks" for t in node.targets):
            try:
                value = tuple(ast.literal_eval(node.value))
            except (ValueError, TypeError):
                value = ()
            if not value or not set(value) <= set(FRAMEWORKS):
                given = ast.unparse(node.value)
                raise PluginError(
                    f"workload {path}: frameworks = {given} is not a tuple of names out of {', '.join(FRAMEWORKS)}"
                )
            return value
    return FRAMEWORKS


def _generator(seed: int, *keys: str | int) -> np.random.Generator:
    # Strings go through CRC32, because Python's own hash differs from process to process.
    words = [zlib.crc32(key.encode()) if isinstance(key, str) else key for key in keys]
    return np.random.default_rng([seed, *words])
