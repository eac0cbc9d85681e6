"""What is differentiated: a workload is a module with three functions, written once for all frameworks.

- `losses(ops, parameters, batch)` -> per-instance losses, shape (B,), through the thin namespace `ops`;
- `parameters(rng)` -> `{name: float array}` in NumPy;
- `batch(rng, size)` -> `{name: array}` in NumPy, the first axis of each being the instance.

Randomness is data: whatever a loss would draw comes with the batch, so every framework sees the same draw.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.problem import Losses
from harness.strategies import PluginError, load_file, suggestion

FOLDER = Path(__file__).resolve().parent

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Workload:
    """A model, its loss, its parameters and its batches.

    The attributes `losses`, `parameters` and `batch` are the functions described at the top of this module.
    """

    name: str
    losses: Losses
    parameters: Callable[[np.random.Generator], Arrays]
    batch: Callable[[np.random.Generator, int], Arrays]
    docstring: str
    path: Path

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
    return [load(path) for path in sorted(FOLDER.glob("*.py")) if not path.name.startswith("_")]


def find(name: str) -> Workload:
    """The built-in workload of that name.

    Raises:
        PluginError: if there is none; the message suggests the nearest name.
    """
    known = {path.stem.replace("_", "-"): path for path in FOLDER.glob("*.py") if not path.name.startswith("_")}
    if name not in known:
        raise PluginError(f"unknown workload {name!r}; {suggestion(name, known)}")
    return load(known[name])


def load(path: Path) -> Workload:
    """Read a workload from its file.

    Raises:
        PluginError: if one of the three functions is missing.
    """
    module = load_file(path)
    missing = [name for name in ("losses", "parameters", "batch") if not callable(getattr(module, name, None))]
    if missing:
        raise PluginError(f"workload {path} lacks the function(s) {', '.join(missing)}")
    return Workload(
        name=path.stem.replace("_", "-"),
        losses=module.losses,
        parameters=module.parameters,
        batch=module.batch,
        docstring=inspect.getdoc(module) or "",
        path=path,
    )


def cast(arrays: Mapping[str, np.ndarray[Any, Any]], dtype: str) -> Arrays:
    """The arrays with every floating one converted to `dtype`; integers stay as they are."""
    return {
        name: value.astype(dtype) if np.issubdtype(value.dtype, np.floating) else value
        for name, value in arrays.items()
    }


def _generator(seed: int, *keys: str | int) -> np.random.Generator:
    # Strings go through CRC32, because Python's own hash differs from process to process.
    words = [zlib.crc32(key.encode()) if isinstance(key, str) else key for key in keys]
    return np.random.default_rng([seed, *words])
