"""What a workload is, and how a package declares one."""

from __future__ import annotations

import importlib
import inspect
import tokenize
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.domain import INTERFACE
from harness.core.framework import framework_names
from harness.core.layouts import Layout
from harness.core.plugins import PluginError, check_interface
from harness.core.problem import Losses, Module
from harness.core.user_code import checked_batch, checked_parameters, explained

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Workload:
    """A model, its loss, its parameters and its batches.

    The attributes `losses`, `parameters` and `batch` are the functions described in `harness.core.find_workloads`;
    `losses` takes `ops` in any case.

    Attributes:
        source: what `find` takes to find it again in another process: a name or an absolute path.
        written_for: the frameworks it is written for; all, through `ops`, if empty.
        layouts: canonical layouts of those parameters and inputs that PyTorch orders differently.
        state: what `losses` is given beside `parameters`, never differentiated, whatever its dtype.
        module: the model as a `torch.nn.Module`, where the file gives it; the functions follow from it.
    """

    name: str
    losses: Losses
    parameters: Callable[[np.random.Generator], Arrays]
    batch: Callable[[np.random.Generator, int], Arrays]
    docstring: str
    path: Path
    source: str = ""
    written_for: tuple[str, ...] = ()
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    state: Callable[[], Arrays] = dict
    module: Module | None = None

    @property
    def through_ops(self) -> bool:
        """Whether it is written through `ops`, for all frameworks, so that it can be read without loading one."""
        return not self.written_for

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The frameworks whose strategies can run it."""
        return self.written_for or framework_names()

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return self.docstring.partition("\n")[0]

    @property
    def code(self) -> str:
        """The text of the workload's file."""
        with tokenize.open(self.path) as file:  # in the encoding that it declares
            return file.read()

    def initial_parameters(self, seed: int) -> Arrays:
        """The parameters that every strategy starts from, float64; the same for the same seed.

        Raises:
            Failing: if the workload's function fails, or returns something else than NumPy arrays by name.
        """
        with explained(self.name, self.path, "parameters()"):
            return checked_parameters(self.name, self.parameters(_generator(seed, self.name)))

    def batches(self, seed: int, size: int, count: int) -> list[Arrays]:
        """`count` different batches of `size` instances; the same for the same seed.

        Raises:
            Failing: if the workload's function fails, or returns something else than NumPy arrays (size, ...) by name.
        """
        with explained(self.name, self.path, "batch()"):
            drawn = (self.batch(_generator(seed, self.name, size, number), size) for number in range(count))
            return [checked_batch(self.name, batch, size) for batch in drawn]


def workload(
    *,
    parameters: Callable[[np.random.Generator], Arrays],
    batch: Callable[[np.random.Generator, int], Arrays],
    frameworks: tuple[str, ...] = (),
    layouts: Mapping[str, Layout] | None = None,
    state: Callable[[], Arrays] = dict,
    interface: int = INTERFACE,
) -> Callable[[Callable[..., Any]], Workload]:
    """Declare a function to be the losses of a workload, whose name is the function's, with hyphens.

    Args:
        parameters: `parameters(rng)` -> `{name: array}`, NumPy; integers are state and not differentiated.
        batch: `batch(rng, size)` -> `{name: array (size, ...)}`, NumPy; all randomness is drawn here.
        frameworks: without them the function is `losses(ops, parameters, batch)`, written through `ops`; for some
            it is `losses(parameters, batch)`, and imports its framework inside. Either returns losses, shape (B,).
        layouts: canonical layouts of images and kernels, see `harness.core.layouts`.
        state: `state()` -> `{name: array}`, NumPy: what `losses` finds among its parameters and is not differentiated.
        interface: the version of the interface it was written for.

    Raises:
        PluginError: if a framework is unknown, or the workload is for another version of the interface.
    """
    check_interface(interface)
    if not set(frameworks) <= set(framework_names()):
        raise PluginError(f"frameworks={frameworks!r} is not a tuple of names out of {', '.join(framework_names())}")

    def declare(losses: Callable[..., Any]) -> Workload:
        written_for = () if set(frameworks) == set(framework_names()) else frameworks
        name = losses.__name__.replace("_", "-")
        return Workload(
            name=name,
            losses=losses if not written_for else lambda ops, parameters, batch: losses(parameters, batch),
            parameters=parameters,
            batch=batch,
            docstring=inspect.getdoc(losses) or "",
            path=Path(inspect.getfile(losses)),
            source=name,
            written_for=written_for,
            layouts=layouts or {},
            state=state,
        )

    return declare


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


def _generator(seed: int, *keys: str | int) -> np.random.Generator:
    # Strings go through CRC32, because Python's own hash differs from process to process.
    words = [zlib.crc32(key.encode()) if isinstance(key, str) else key for key in keys]
    return np.random.default_rng([seed, *words])
