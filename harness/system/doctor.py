"""`pergrad doctor`: look at what is installed, what each framework sees, and what here will disturb a measurement.

What it means is said by `harness.system.diagnostics`.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from harness.core import find_strategies, find_workloads
from harness.core.domain import usable_cores
from harness.core.find_strategies import Catalogue
from harness.core.framework import framework_names
from harness.core.framework import unavailable as unavailable_frameworks
from harness.core.plugins import PluginError
from harness.core.strategy import Strategy
from harness.frameworks import child_process
from harness.frameworks.child_process import START_LIMIT_S, ChildProcessFailed
from harness.system import detect, diagnostics, gpu, info, lock
from harness.system.diagnostics import PROBLEM, WARNING, Finding, Peer, Watched
from harness.system.info import available_bytes

SAMPLE_S = 1.0
"""How long the machine is watched."""

NAMED_CORES = 0.05
"""What a program must use to be named."""

THREAD_LIMITS = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),
)


@dataclass(frozen=True)
class Examination:
    """Everything that was found."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether a run could start and its times could be trusted."""
        return not self._count(PROBLEM)

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {"ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}

    def text(self) -> str:
        """One finding per line, with what to do below it, and the verdict."""
        lines = []
        for finding in self.findings:
            lines.append(f"{finding.level:<8} {finding.what}: {finding.found}")
            if finding.do:
                lines.append(f"{'':<8} do: {finding.do}")
        verdict = ["ready to measure"] if self.ok else []
        for level in (PROBLEM, WARNING):
            if count := self._count(level):
                verdict.append(f"{count} {level}{'s' if count > 1 else ''}")
        return "\n".join([*lines, "", ", ".join(verdict)])

    def _count(self, level: str) -> int:
        return sum(finding.level == level for finding in self.findings)


def examine() -> Examination:
    """Look at everything. Takes some seconds, because every framework is imported in a process of its own."""
    cards = gpu.cards()  # before the frameworks compute on them
    watched = watch()  # before the frameworks are imported, which keeps the machine busy
    seen = detect.detect(framework_names(), None)
    try:
        catalogue, contradiction = find_strategies.discover(), ""
    except PluginError as error:
        catalogue, contradiction = Catalogue(()), str(error)
    broken = {plugin.name: plugin.reason for plugin in catalogue.unavailable}
    return Examination(
        (
            *diagnostics.installed(seen, info.versions()),
            *diagnostics.gpus(cards, seen),
            *(diagnostics.peer(found) for found in look_for_peers(needs(catalogue))),
            *diagnostics.plugins({**unavailable_frameworks(), **broken, **find_workloads.unavailable()}, contradiction),
            *diagnostics.another_run(lock.holder()),
            *surroundings(watched, info.describe()),
        )
    )


def surroundings(watched: Watched, about: Mapping[str, Any]) -> Sequence[Finding]:
    """What will disturb a measurement here.

    Args:
        about: the machine, as `info.describe` tells it.
    """
    results = Path("results")
    return (
        diagnostics.busy(watched),
        diagnostics.steal(watched.steal),
        diagnostics.memory(available_bytes()),
        *diagnostics.swap(psutil.swap_memory().used),
        diagnostics.disk(shutil.disk_usage(results if results.exists() else Path.cwd()).free),
        *diagnostics.cores(about),
        diagnostics.frequency(about["frequency_policy"]),
        diagnostics.threads({name: os.environ[name] for name in THREAD_LIMITS if name in os.environ}),
    )


def watch() -> Watched:
    """Watch the machine for a moment, in which this process sleeps."""
    others = list(psutil.process_iter(["name"]))
    for process in others:
        with suppress(psutil.Error):
            process.cpu_percent()
    times = psutil.cpu_times_percent(interval=SAMPLE_S, percpu=True)
    programs: dict[str, float] = {}
    for process in others:
        with suppress(psutil.Error):
            name = str(process.info["name"])
            programs[name] = programs.get(name, 0.0) + process.cpu_percent() / 100
    busiest = sorted(programs.items(), key=lambda program: -program[1])[:3]
    usable = usable_cores()
    mine = [core for number, core in enumerate(times) if number in usable] or times
    kinds = ("user", "nice", "system", "irq", "softirq")
    return Watched(
        cores=len(mine),
        # Those of other containers are in the cores' times only, which some sandboxes do not tell.
        busy=sum(getattr(core, kind, 0.0) for core in mine for kind in kinds) / 100 or sum(programs.values()),
        busiest=tuple(f"{name} ({used:.1f})" for name, used in busiest if used > NAMED_CORES),
        lately=os.getloadavg()[0] / len(times),
        steal=sum(getattr(core, "steal", 0.0) for core in mine) / 100 / len(mine),
    )


def needs(catalogue: Catalogue) -> dict[str, tuple[str, str]]:
    """Package -> the framework in whose environment it is imported, and what it is needed for."""
    users: dict[str, list[Strategy]] = {}
    for strategy in catalogue.strategies:
        for package in strategy.requires:
            users.setdefault(package, []).append(strategy)
    named = {package: (who[0].framework, ", ".join(s.name for s in who)) for package, who in sorted(users.items())}
    return named | {"ml_dtypes": ("numpy", "--dtype bfloat16")}


def look_for_peers(needed: Mapping[str, tuple[str, str]]) -> Sequence[Peer]:
    """Each package that is needed, imported in a process of its own if it is installed."""
    distributions = metadata.packages_distributions()

    def look(package: str) -> Peer:
        framework, needed_for = needed[package]
        if find_spec(package) is None:
            return Peer(package, needed_for, None)
        names = distributions.get(package)
        version = metadata.version(names[0]) if names else "of an unknown version"
        return Peer(package, needed_for, version, why_not(package, framework))

    with ThreadPoolExecutor() as pool:
        return list(pool.map(look, needed))


def why_not(package: str, framework: str) -> str:
    """Why a package cannot be imported in a process of that framework; empty if it can."""
    try:
        target = "harness.system.doctor:import_here"
        child_process.call(target, package, framework=framework, limit_s=START_LIMIT_S)
    except ChildProcessFailed as error:
        return f"importing it failed: {error}"
    return ""


def import_here(package: str) -> None:
    """Import a package in this process."""
    importlib.import_module(package)
