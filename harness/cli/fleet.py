"""What the options mean that are about several machines. Nothing of Dask is imported without `--cluster`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

from harness.cli.options import refuse

if TYPE_CHECKING:
    from harness.fleet.run import Fleet


def engine(name: str = "run") -> ModuleType:
    """A module of `harness.fleet`, once it is known that Dask can be imported."""
    if find_spec("distributed") is None:
        refuse("--cluster needs Dask, on this machine and on those of the cluster: pip install 'pergrad[cluster]'")
    return import_module(f"harness.fleet.{name}")


def fleet(
    cluster: str | None, each: bool, across_versions: bool, prices: Mapping[str, float], pythons: bool
) -> Fleet | None:
    """How a cluster is to be used; None without one, and then the other options are refused."""
    others = {"--each": each, "--across-versions": across_versions, "--price": bool(prices)}
    if cluster is None:
        if given := [option for option, is_given in others.items() if is_given]:
            refuse(f"{', '.join(given)}: these are for several machines, so give --cluster too")
        return None
    if pythons:
        refuse(
            "--python names an interpreter of this machine: for --cluster set PERGRAD_PYTHON_JAX or the like where the "
            "Dask workers are started"
        )
    found: Fleet = engine().Fleet(cluster, each, across_versions, prices)
    return found


def prices(given: Sequence[str]) -> dict[str, float]:
    """`KIND=0.42` -> what an hour of that kind costs."""
    found = {}
    for entry in given:
        kind, _, price = entry.rpartition("=")
        try:
            value = float(price)
        except ValueError:
            value = math.nan
        if not kind or not value > 0 or not math.isfinite(value):
            refuse(f"--price {entry}: give a kind, or a part of its name, and what an hour costs, as in epyc=0.42")
        found[kind] = value
    return found
