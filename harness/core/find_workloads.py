"""What is differentiated: a workload is a module with three functions, written once for all frameworks.

- `losses(ops, parameters, batch)` -> per-instance losses, shape (B,), through the thin namespace `harness.ops`;
- `parameters(rng)` -> `{name: array}` in NumPy; integers among them are state: handed to `losses`, not differentiated;
- `batch(rng, size)` -> `{name: array}` in NumPy, the first axis of each being the instance.

Randomness is data: whatever a loss would draw comes with the batch, so every framework sees the same draw.
Three things are optional. `state(rng)` -> `{name: array}` in NumPy: what `losses` finds among its parameters and is
never differentiated, as a frozen backbone; it follows dtype and device. `layouts()` -> `{name: layout}` for images,
kernels and the like (`harness.core.layouts`).
`SMALL` is a value that the functions other than `losses` take as their last argument instead of a default: the
sizes of a variant for tests.

A module may be written for some frameworks only, with `frameworks = ("torch",)` at its top. Then there is no
`ops`: the function is `losses(parameters, batch)`, and the module is imported nowhere but in a process of that
framework, so it may import it.

For PyTorch a module may give its model instead of `losses` and `parameters`: `model()` -> `torch.nn.Module`,
`loss(output, batch)` -> (B,), and, where the model's call takes more than the first input, `inputs(batch)` -> the
arguments of that call. Rows have the names of the model's parameters; its buffers and the parameters that require no
gradient are state.

A package may declare one with `@workload(...)` instead, and name it in the entry point as `module:function`; then the
module is imported everywhere, and imports its framework inside its functions.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from harness.core import torch_module
from harness.core.framework import framework_names
from harness.core.plugins import PluginError, check_interface, load_file, suggestion
from harness.core.workload import Workload

FOLDER = Path(__file__).resolve().parents[1] / "workloads"
LOCAL_FOLDER = Path("workloads")
"""Where `pergrad new` puts a workload, below the current folder."""

ENTRY_POINTS = "pergrad.workloads"
SMALL = "-small"

STATE_SEED = 0
"""What `state` of a file draws from."""


def builtin() -> list[Workload]:
    """The workloads that come with pergrad, sorted by name."""
    return [find(name) for name in sorted(_builtin_paths())]


def others() -> list[Workload]:
    """The workloads below the current folder and those of installed packages, sorted by name.

    Those that cannot be read are left out: `unavailable` names them.
    """
    return _others()[0]


def unavailable() -> dict[str, str]:
    """Name -> the reason, of those below the current folder or of packages that cannot be read; they stop no others."""
    return _others()[1]


def find(name_or_path: str | Path, small: bool = False) -> Workload:
    """The workload of that name, built in, below the current folder or installed, or the one in that file.

    `small` asks for the variant for tests, which is also found as `<name>-small`; a workload that has none is tiny
    itself.

    Raises:
        PluginError: if there is none, or it contradicts the interface; the message says what to do.
    """
    given = str(name_or_path)
    builtin_paths = _builtin_paths()
    installed, local = _entry_points(), _paths(LOCAL_FOLDER)
    name = given.removesuffix(SMALL)
    small = small or name != given
    if name in builtin_paths:
        return load(builtin_paths[name], small=small)
    if name in local:
        return load(local[name], small=small)
    if name in installed:
        return _load_entry_point(installed[name], small)
    if given.endswith(".py"):
        return load(Path(given), small=small)
    known = [*builtin_paths, *local, *installed]
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


def _builtin_paths() -> dict[str, Path]:
    return _paths(FOLDER)


def _paths(folder: Path) -> dict[str, Path]:
    return {path.stem.replace("_", "-"): path for path in folder.glob("*.py") if not path.name.startswith("_")}


def _entry_points() -> dict[str, metadata.EntryPoint]:
    return {entry.name: entry for entry in metadata.entry_points(group=ENTRY_POINTS)}


def _others() -> tuple[list[Workload], dict[str, str]]:
    found, broken = [], {}
    for name in sorted({*_paths(LOCAL_FOLDER), *_entry_points()} - {*_builtin_paths()}):
        try:
            found.append(find(name))
        except Exception as error:  # whatever a file raises when it is imported
            broken[name] = str(error) if isinstance(error, PluginError) else f"{type(error).__name__}: {error}"
    return found, broken


def _load_entry_point(entry: metadata.EntryPoint, small: bool) -> Workload:
    if entry.attr:
        try:
            declared = entry.load()
        except Exception as error:
            raise PluginError(f"workload {entry.name} cannot be imported: {error}") from error
        if not isinstance(declared, Workload):
            raise PluginError(f"workload {entry.name}: {entry.value} is not a function decorated with @workload(...)")
        return replace(declared, name=entry.name, source=entry.name)
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
        tree = ast.parse(path.read_bytes())  # bytes, so that Python finds out about the encoding
    except SyntaxError as error:
        place = f"line {error.lineno}: " if error.lineno else ""
        raise PluginError(f"workload {path} is not valid Python: {place}{error.msg}") from error
    except ValueError as error:
        raise PluginError(f"workload {path} is not valid Python: {error}") from error
    defined = _defined(tree)
    gives_model = "model" in defined and "losses" not in defined
    needed = ("model", "loss", "batch") if gives_model else ("losses", "parameters", "batch")
    if missing := [function for function in needed if function not in defined]:
        raise PluginError(f"workload {path} lacks the function(s) {', '.join(missing)}")
    if isinstance(version := _assigned(tree, "interface"), ast.Constant):
        try:
            check_interface(int(str(version.value)))
        except PluginError as error:
            raise PluginError(f"workload {name} is {error}") from error
    docstring = inspect.cleandoc(ast.get_docstring(tree) or "")
    frameworks = _frameworks(tree, path)
    if gives_model and frameworks != ("torch",):
        raise PluginError(f'workload {path} gives `model`, as PyTorch alone takes it: write frameworks = ("torch",)')
    small = small and "SMALL" in defined
    name, source = (name + SMALL, source + SMALL) if small and source == name else (name, source)
    load = cache(import_module)
    if gives_model:
        module = torch_module.from_file(load, lambda: _sizes(load(), small))
        return Workload(
            name=name,
            losses=torch_module.losses(module),
            parameters=lambda rng: torch_module.parameters(module),
            batch=lambda rng, size: load().batch(rng, size, *_sizes(load(), small)),
            docstring=docstring,
            path=path,
            source=source,
            written_for=frameworks,
            state=lambda: torch_module.state(module),
            module=module,
        )
    state = (lambda: load().state(np.random.default_rng(STATE_SEED))) if "state" in defined else dict
    if frameworks:
        return Workload(
            name=name,
            losses=lambda ops, parameters, batch: load().losses(parameters, batch),
            parameters=lambda rng: load().parameters(rng, *_sizes(load(), small)),
            batch=lambda rng, size: load().batch(rng, size, *_sizes(load(), small)),
            docstring=docstring,
            path=path,
            source=source,
            written_for=frameworks,
            state=state,
        )
    file = load()
    sizes = _sizes(file, small)
    return Workload(
        name=name,
        losses=file.losses,
        parameters=lambda rng: file.parameters(rng, *sizes),
        batch=lambda rng, size: file.batch(rng, size, *sizes),
        docstring=docstring,
        path=path,
        source=source,
        layouts=file.layouts(*sizes) if "layouts" in defined else {},
        state=state,
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
    """The value of `frameworks` at the top level of a module; empty if it is written for all, through `ops`."""
    given = _assigned(tree, "frameworks")
    if given is None:
        return ()
    try:
        value = tuple(ast.literal_eval(given))
    except (ValueError, TypeError):
        value = ()
    if not value or not set(value) <= set(framework_names()):
        known = ", ".join(framework_names())
        raise PluginError(f"workload {path}: frameworks = {ast.unparse(given)} is not a tuple of names out of {known}")
    return value


def _assigned(tree: ast.Module, name: str) -> ast.expr | None:
    """What is assigned to a name at the top level of a module."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return node.value
    return None
