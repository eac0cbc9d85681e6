"""Declare strategies: the decorator `@strategy` and what it makes of a function."""

from __future__ import annotations

import inspect
import tokenize
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.domain import DEVICES, INTERFACE, QUANTITIES
from harness.core.framework import framework_names
from harness.core.plugins import PluginError, check_interface
from harness.core.problem import Step
from harness.core.standalone import standalone

Build = Callable[[Any], Step]


class Unsupported(Exception):
    """Raised by a strategy that cannot do what is asked; the reason is shown in the report, not as a failure."""


@dataclass(frozen=True)
class Strategy:
    """One way to compute per-instance gradients in one framework.

    Attributes:
        name: `<framework>/<function-name>`, such as `jax/vmap`.
        framework: one of `harness.core.framework.framework_names()`.
        build: receives a `Problem` and returns `step(batch) -> gradients`; its time is the build time.
        quantity: what `step` returns, one of `QUANTITIES`.
        source: where the idea comes from.
        requires: packages needed beyond the framework itself.
        devices: kinds of device it runs on.
        reuses_output: whether a call may overwrite what earlier calls returned.
        environment: variables that its worker needs before the framework is imported.
        every_device: whether it uses all devices of a kind at once, instead of the one it is given.
        through_ops: whether it runs only losses that are written through `ops`, whose layers it reads.
        loop: whether it is the plain loop over the instances in its framework, which others are compared with.
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
    loop: bool = False
    full_only: bool = False
    every_device: bool = False
    through_ops: bool = False

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
        """A file of its own that runs with the reader's model and the framework alone."""
        with tokenize.open(self.path) as file:  # in the encoding that it declares
            text = file.read()
        function = inspect.unwrap(self.build).__name__
        return standalone(text, self.name, function, self.source, self.requires, dict(self.environment))


def strategy(
    *,
    framework: str,
    source: str = "",
    quantity: str = "gradients",
    requires: Sequence[str] = (),
    devices: Sequence[str] = DEVICES,
    reuses_output: bool = False,
    environment: Mapping[str, str] | None = None,
    loop: bool = False,
    full_only: bool = False,
    every_device: bool = False,
    through_ops: bool = False,
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
        ((framework,), framework_names(), "framework"),
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
            path=Path(inspect.getfile(inspect.unwrap(build))),
            reuses_output=reuses_output,
            environment=tuple((environment or {}).items()),
            loop=loop,
            full_only=full_only,
            every_device=every_device,
            through_ops=through_ops,
        )

    return declare
