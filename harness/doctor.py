"""`pergrad doctor`: what is installed, what each framework sees, and what here will disturb a measurement."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from harness import frameworks, lock, machine, probe
from harness.memory import available_bytes
from harness.probe import Seen
from harness.report import formats

OK, NOTE, WARNING, PROBLEM = "ok", "note", "warning", "problem"

PEERS = {
    "opacus": "strategies torch/opacus-*; pip install 'pergrad[peers]'",
    "backpack": "strategy torch/backpack-batch-grad; pip install 'pergrad[peers]'",
    "ml_dtypes": "--dtype bfloat16; pip install ml_dtypes",
}
"""Package -> what needs it, and how to install it."""

BUSY_SHARE = 0.1
"""Share of one core that others may use; two cores with one of them busy give times that are twice too long."""

FEW_BYTES = 6 << 30
"""Rows of up to 4 GiB are measured, and checking needs copies of a part of them."""

STEAL_SHARE = 0.02
"""Share of the time that a virtual machine's host may give to others before times become doubtful."""

SAMPLE_S = 1.0
"""How long the machine is watched."""

THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "XLA_FLAGS")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: how bad it is, what was found, and what to do about it."""

    level: str
    what: str
    found: str
    do: str = ""


@dataclass(frozen=True)
class Watched:
    """What was seen of the machine in `SAMPLE_S`.

    Attributes:
        busy: cores' worth of time that other processes used.
        busiest: their names, the busiest first.
        steal: share of the time that the host gave to others.
    """

    busy: float
    busiest: tuple[str, ...]
    steal: float


@dataclass(frozen=True)
class Examination:
    """Everything that was found."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether a run could start and its times could be trusted."""
        return not any(finding.level == PROBLEM for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {"ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}

    def text(self) -> str:
        """One finding per line, with what to do below it."""
        lines = []
        for finding in self.findings:
            lines.append(f"{finding.level:<8} {finding.what}: {finding.found}")
            if finding.do:
                lines.append(f"{'':<8} do: {finding.do}")
        count = sum(finding.level == PROBLEM for finding in self.findings)
        verdict = "ready to measure" if self.ok else f"{count} problem{'s' if count > 1 else ''}"
        return "\n".join([*lines, "", verdict])


def examine() -> Examination:
    """Look at everything. Takes some seconds, because every framework is imported in a process of its own."""
    watched = watch()  # before the frameworks are imported, which keeps the machine busy
    seen = probe.probe(list(frameworks.PACKAGES), None)
    about = machine.describe()
    return Examination(
        (
            *installed(seen, machine.versions()),
            *peers({name for name in PEERS if find_spec(name)}),
            busy(watched),
            *another_run(lock.holder()),
            steal(watched.steal),
            memory(available_bytes(), psutil.swap_memory().used),
            disk(shutil.disk_usage(Path.cwd()).free),
            *cores(about),
            frequency(about["frequency_policy"]),
            threads({name: os.environ[name] for name in THREAD_LIMITS if name in os.environ}),
        )
    )


def watch() -> Watched:
    """Watch the machine for a second; this process does not count."""
    others = []
    for process in psutil.process_iter(["name"]):
        if process.pid != os.getpid():
            try:
                process.cpu_percent()
                others.append(process)
            except psutil.Error:
                continue
    before = psutil.cpu_times_percent(interval=SAMPLE_S)
    shares = []
    for process in others:
        try:
            shares.append((process.cpu_percent() / 100, str(process.info["name"])))
        except psutil.Error:
            continue
    busiest = sorted(shares, reverse=True)[:3]
    steal_share = float(getattr(before, "steal", 0.0)) / 100
    return Watched(sum(share for share, _ in shares), tuple(n for s, n in busiest if s > BUSY_SHARE / 2), steal_share)


def installed(seen: Mapping[str, Seen], versions: Mapping[str, str]) -> Iterable[Finding]:
    """Each framework, with its version and devices; without any, nothing but NumPy can be measured."""
    for name, answer in seen.items():
        package = frameworks.PACKAGES[name][0]
        if answer["status"] != "ok":
            yield Finding(NOTE, name, str(answer["reason"]), "its strategies are marked unavailable until then")
            continue
        devices = ", ".join(f"{device['kind']} ({device['name']})" for device in answer["devices"])
        yield Finding(OK, name, f"{package} {versions.get(package, '')}, sees {devices}")
    if not any(answer["status"] == "ok" for name, answer in seen.items() if name != "numpy"):
        do = "pip install 'pergrad[all]', or one of the extras tensorflow, jax, torch"
        yield Finding(PROBLEM, "frameworks", "none can be imported", do)


def peers(there: set[str]) -> Iterable[Finding]:
    """Packages that some strategies need beyond their framework."""
    for name, needed in PEERS.items():
        if name not in there:
            yield Finding(NOTE, name, "not installed", f"only if you want {needed}")


def busy(watched: Watched) -> Finding:
    """Whether others use the cores."""
    found = f"{watched.busy:.1f} cores are used by others"
    if watched.busiest:
        found += f", most by {', '.join(watched.busiest)}"
    if watched.busy < BUSY_SHARE:
        return Finding(OK, "load", found)
    level = PROBLEM if watched.busy > 0.5 else WARNING
    return Finding(level, "load", found, "stop them, or wait; cases measured meanwhile are marked unstable")


def another_run(owner: str) -> Iterable[Finding]:
    """Whether another run is measuring."""
    if owner:
        yield Finding(PROBLEM, "another run", owner, "wait until it has ended: two runs at once measure each other")


def steal(share: float) -> Finding:
    """Whether the host of a virtual machine takes time away."""
    found = f"{share:.0%} of the time went to other machines of this host"
    if share <= STEAL_SHARE:
        return Finding(OK, "host", found)
    do = "measure more passes, trust ratios within one run, or use a machine of your own"
    return Finding(WARNING, "host", found, do)


def memory(free: int, swapped: int) -> Finding:
    """Whether large results fit."""
    found = f"{formats.size(free)} free"
    if free < FEW_BYTES // 8:
        return Finding(PROBLEM, "memory", found, "free some: a framework alone takes half a gigabyte")
    if free < FEW_BYTES:
        return Finding(WARNING, "memory", found, "large batches of large models are skipped; choose smaller ones")
    if swapped:
        return Finding(NOTE, "memory", f"{found}, {formats.size(swapped)} swapped out", "swapoff -a, or restart")
    return Finding(OK, "memory", found)


def disk(free: int) -> Finding:
    """Whether results can be written."""
    found = f"{formats.size(free)} free in the current folder"
    if free < 100 << 20:
        return Finding(PROBLEM, "disk", found, "free some, or write elsewhere with --results and --reports")
    return Finding(OK, "disk", found)


def cores(about: Mapping[str, Any]) -> Iterable[Finding]:
    """Whether all cores that the frameworks count can be used."""
    available, logical, quota = about["cores_available"], about["cores_logical"], about["cpu_quota"]
    if quota is not None and quota < available:
        do = f"frameworks start a thread per core and are throttled: run with --threads {max(1, int(quota))}"
        yield Finding(WARNING, "cores", f"the container may use {quota:g} of {available} cores", do)
    elif logical and available < logical:
        yield Finding(
            NOTE, "cores", f"{available} of {logical} cores may be used", "widen the affinity mask, if you can"
        )
    else:
        yield Finding(OK, "cores", f"{available}")


def frequency(policy: str | None) -> Finding:
    """Whether the clock rate stays the same."""
    if policy is None:
        return Finding(NOTE, "clock rate", "not told by this system, as in virtual machines", "measure more passes")
    if policy == "performance":
        return Finding(OK, "clock rate", policy)
    return Finding(WARNING, "clock rate", f"policy {policy}", "sudo cpupower frequency-set --governor performance")


def threads(limits: Mapping[str, str]) -> Finding:
    """Whether variables limit the threads of some frameworks and not of others."""
    if not limits:
        return Finding(OK, "thread limits", "none set")
    found = ", ".join(f"{name}={value}" for name, value in limits.items())
    return Finding(WARNING, "thread limits", found, f"unset {' '.join(limits)}; --threads limits all frameworks alike")
