"""Describe a framework without importing it, and find all that can be measured with.

Each is declared by its adapter's module, as `FRAMEWORK` beside the class `ADAPTER`. Those of pergrad lie in
`harness.frameworks`; an installed package adds one by an entry point of the group `pergrad.frameworks`, whose name is
the framework's and whose value is such a module. A strategy in that same module stands below the two.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType

BUILT_IN = ("tf1", "tf2", "jax", "torch", "numpy")
"""In the order in which reports show them; an older way to use a package stands before a newer one."""

ENTRY_POINTS = "pergrad.frameworks"

GPU_OUT_OF_MEMORY = ("OUT_OF_MEMORY", "ALLOC(ATION)?_FAILED", "Failed to allocate", "hipErrorOutOfMemory")
"""How CUDA, its libraries, ROCm and XLA say that a GPU's memory has run out, as patterns for `out_of_memory`."""


@dataclass(frozen=True)
class Framework:
    """What is known of a framework without importing it.

    Attributes:
        label: its name in headings.
        package: what must be importable.
        packages: the distributions whose versions its times depend on.
        extra: pergrad's extra that installs it; empty if there is none.
        start_s: seconds from starting a worker to its first case, on two cores.
        light: the colour of its lines and names on a light ground.
        dark: the same on a dark ground.
        precision: how float32 is computed, for the report's table of configurations.
        memory: how it takes memory, likewise.
        autotuning: what it chooses by trying on a GPU, and when, likewise.
        result: what a timed call ends with, likewise.
        stays_on_device: whether the result of a timed call may stay on a GPU.
        out_of_memory: regular expressions, one of which is found in what it says when memory runs out.
        data_dependent: the same for what it says of Python branches that depend on an instance's values.
        untransformable: the same for what a transformation such as `vmap` cannot do, and a plain loop can.
        reference: the framework that computes the reference of a workload written for this one only; itself if empty.
        rooflines: the kinds of device whose roofline its adapter can measure.
        gpu_install: what pip is given for a build that uses NVIDIA's GPUs; empty if there is none.
        workload_template: the template of `pergrad new workload` that is written for it.
    """

    name: str
    label: str
    package: str
    start_s: float
    light: str
    dark: str
    packages: tuple[str, ...] = ()
    extra: str = ""
    precision: str = "not known"
    memory: str = "not known"
    autotuning: str = "nothing"
    result: str = "not known"
    stays_on_device: bool = True
    out_of_memory: tuple[str, ...] = ()
    data_dependent: tuple[str, ...] = ()
    untransformable: tuple[str, ...] = ()
    reference: str = ""
    rooflines: tuple[str, ...] = ()
    gpu_install: str = ""
    workload_template: str = ""

    @property
    def install(self) -> str:
        """What pip is given to install it."""
        return f"'pergrad[{self.extra}]'" if self.extra else self.package

    @property
    def is_installed(self) -> bool:
        """Whether its package can be found; nothing is imported."""
        return importlib.util.find_spec(self.package) is not None


def framework_names() -> tuple[str, ...]:
    """The names of all frameworks, those of pergrad first."""
    return tuple(_found()[0])


def unavailable() -> Mapping[str, str]:
    """Name -> the reason, of frameworks of installed packages that cannot be had; they stop no others."""
    return _found()[1]


def framework(name: str) -> Framework:
    """The description of a framework.

    Raises:
        KeyError: if there is none of that name.
    """
    found: Framework = adapter_module(name).FRAMEWORK
    return found


def framework_or_unknown(name: str) -> Framework:
    """The description of a framework, or of one that nothing is known of: runs come from other machines too."""
    if name in framework_names():
        return framework(name)
    return Framework(name, label=name, package=name, start_s=0.0, light="#706700", dark="#ffc64d")


def adapter_module(name: str) -> ModuleType:
    """The module with a framework's description and adapter; importing it does not import the framework."""
    return importlib.import_module(_found()[0][name])


@functools.cache
def _found() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Framework -> the module of its adapter; and those that cannot be had -> the reason."""
    modules = {name: f"harness.frameworks.{name}" for name in BUILT_IN}
    broken = {}
    for entry in sorted(metadata.entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        if reason := _why_not(entry, modules):
            broken[entry.name] = reason
        else:
            modules[entry.name] = entry.value
    return modules, broken


def _why_not(entry: metadata.EntryPoint, taken: Mapping[str, str]) -> str:
    """Why the framework of an entry point cannot be had; empty if it can."""
    if entry.name in taken:
        return f"{entry.value} is called as {taken[entry.name]} is: {entry.name}"
    try:
        module = importlib.import_module(entry.value)
    except Exception as error:  # whatever a module raises when it is imported
        return f"{type(error).__name__}: {error}"
    described = getattr(module, "FRAMEWORK", None)
    if not isinstance(described, Framework) or not hasattr(module, "ADAPTER"):
        return f"{entry.value} does not define FRAMEWORK and ADAPTER"
    if described.name != entry.name:
        return f"{entry.value} describes a framework {described.name!r}, which its entry point calls {entry.name!r}"
    return ""
