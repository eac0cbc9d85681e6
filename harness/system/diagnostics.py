"""What `pergrad doctor` makes of what it saw: how bad it is, and what to do about it. Functions of plain values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.analysis import formats
from harness.analysis.predict import MOST_ROW_BYTES
from harness.core.framework import framework
from harness.system.detect import Seen
from harness.system.gpu import Card

OK, NOTE, WARNING, PROBLEM = "ok", "note", "warning", "problem"

BUSY_SHARE = 0.05
"""Of the cores, that others may use: a tenth of a core where there are two, more than an idle system needs."""

HEAVY_SHARE = 0.25
"""Of the cores, from which on a call that wants all of them has to wait for one: half a core where there are two."""

LATELY_SHARE = 0.5
"""Load average per core of the last minute that tells of work which pauses, or has only just ended."""

STEAL_SHARE = 0.02
"""Of the time, that a virtual machine's host may give to others: what is left of it is within the noise of a case."""

LEAST_BYTES = 1 << 30
"""TensorFlow takes 0.7 GiB of memory before it computes anything."""

FEW_BYTES = MOST_ROW_BYTES + (2 << 30)
"""The largest result that is measured, and what a framework and the check of it take."""

SWAPPED_BYTES = 64 << 20
"""What any system swaps out of programs that nobody uses."""

LEAST_DISK_BYTES = 100 << 20
"""Fifty times what the run in `results/sample` takes."""

NO_GPU = re.compile(
    "not compiled with CUDA|no platforms that are instances of gpu|No CUDA GPUs|no NVIDIA driver|cuInit|cuda drivers"
)
"""What frameworks say where there is no GPU, or none that they were made for."""

INSTALLED_BY = {"opacus": "'pergrad[peers]'", "backpack": "'pergrad[peers]'", "jax_privacy": "'pergrad[peers]'"}
"""Package -> what pip is given for it, where that is not its name."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: how bad it is, what was found, and what to do about it."""

    level: str
    what: str
    found: str
    do: str = ""


@dataclass(frozen=True)
class Watched:
    """What was seen of the machine in a moment.

    Attributes:
        cores: how many this process may use.
        busy: how much of them others used, in cores.
        busiest: the programs that used most, with the cores they used.
        lately: load average of the last minute, per core of the machine.
        steal: share of the time that the host gave to others.
    """

    cores: int
    busy: float
    busiest: tuple[str, ...] = ()
    lately: float = 0.0
    steal: float = 0.0


@dataclass(frozen=True)
class Peer:
    """A package that something needs beyond its framework.

    Attributes:
        version: None if it is not installed.
        reason: why it cannot be imported, empty if it can.
    """

    package: str
    needed_for: str
    version: str | None
    reason: str = ""


def installed(seen: Mapping[str, Seen], versions: Mapping[str, str]) -> Iterable[Finding]:
    """Each framework, with its version and devices; without any, nothing but NumPy can be measured."""
    for name, answer in seen.items():
        known = framework(name)
        package, command = known.package, f"pip install {known.install}"
        if answer["status"] == "ok":
            devices = ", ".join(f"{device['kind']} ({device['name']})" for device in answer["devices"])
            yield Finding(OK, name, f"{package} {versions.get(package, '')}, sees {devices}")
        elif name == "numpy":
            yield Finding(PROBLEM, name, str(answer["reason"]), f"{command}: the reference is computed with it")
        elif package in versions:
            do = f"{command} in a new environment; its strategies are marked unavailable until then"
            yield Finding(WARNING, name, f"{package} {versions[package]}, but {answer['reason']}", do)
        else:
            do = f"{command}, if you want it; its strategies are marked unavailable until then"
            yield Finding(NOTE, name, f"{package} is not installed", do)
    if not any(answer["status"] == "ok" for name, answer in seen.items() if name != "numpy"):
        extras = dict.fromkeys(extra for name in seen if (extra := framework(name).extra))
        do = f"pip install 'pergrad[all]', or one of the extras {', '.join(extras)}"
        yield Finding(PROBLEM, "frameworks", "none can be imported", do)


def gpus(cards: Sequence[Card], seen: Mapping[str, Seen]) -> Iterable[Finding]:
    """Each GPU, what will disturb it, and each framework that does not see it or that lost the CPU to it."""
    for number, card in enumerate(cards):
        what, memory = f"gpu {number}", formats.size(card.memory_bytes) if card.memory_bytes else "unknown memory"
        known = f"driver {card.driver or 'unknown'}, CUDA up to {card.cuda or 'unknown'}"
        yield Finding(OK, what, f"{card.name}, {memory}, {known}")
        if card.processes:
            found = f"{card.processes} process{'es compute' if card.processes > 1 else ' computes'} on it"
            yield Finding(WARNING, what, found, "wait, or choose another one with --device gpu:N")
        if card.throttled:
            do = "let it cool down, or raise the limit with nvidia-smi -pl"
            yield Finding(WARNING, what, f"its clock is held back: {', '.join(card.throttled)}", do)
        if card.persistent is False:
            do = "sudo nvidia-smi -pm 1: without it every worker waits for the driver"
            yield Finding(NOTE, what, "the driver is unloaded when nobody uses it", do)
        if card.exclusive:
            do = "sudo nvidia-smi -c DEFAULT: workers stand ready side by side"
            yield Finding(PROBLEM, what, "one process at a time may use it (exclusive compute mode)", do)
        if card.mig:
            do = "choose a part with --device gpu:MIG-<uuid>; nvidia-smi -L lists them"
            yield Finding(NOTE, what, "it is divided (MIG)", do)
    for name, answer in seen.items():
        known_framework, why = framework(name), (answer.get("missing") or {}).get("gpu", "")
        sees = any(device["kind"] == "gpu" for device in answer["devices"])
        if answer["status"] != "ok" or sees or not known_framework.gpu_install:
            continue
        if cards:
            do = f"pip install {known_framework.gpu_install}; see docs/gpu.md"
            yield Finding(WARNING, name, f"sees no GPU{why and f': {why}'}", do)
        elif why and not NO_GPU.search(why):
            yield Finding(NOTE, name, f"a GPU cannot be used: {why}", "nothing, if the CPU is meant; else docs/gpu.md")


def peer(found: Peer) -> Finding:
    """Whether what a package is needed for can be had."""
    command = f"pip install {INSTALLED_BY.get(found.package, found.package)}"
    if found.version is None:
        return Finding(NOTE, found.package, "not installed", f"{command}, if you want {found.needed_for}")
    if found.reason:
        do = f"{command} in a new environment, if you want {found.needed_for}"
        return Finding(WARNING, found.package, f"{found.version}, but {found.reason}", do)
    return Finding(OK, found.package, f"{found.version}, for {found.needed_for}")


def plugins(broken: Mapping[str, str], contradiction: str) -> Iterable[Finding]:
    """Plugins that cannot be had, with the reasons, and what keeps every run from starting."""
    if contradiction:
        yield Finding(PROBLEM, "plugins", contradiction, "no run can start before that")
    for name, reason in broken.items():
        yield Finding(WARNING, f"plugin {name}", reason, "mend or uninstall it; all else goes on")


def busy(watched: Watched) -> Finding:
    """Whether others use the cores."""
    share = watched.busy / watched.cores
    found = f"{watched.busy:.1f} of {watched.cores} cores are used by others"
    if watched.busiest:
        found += f", most by {', '.join(watched.busiest)}"
    elif share > BUSY_SHARE:
        found += ", by programs that end at once or cannot be seen from here"
    if share > BUSY_SHARE:
        do = "stop them, or wait; cases measured meanwhile are marked unstable"
        return Finding(PROBLEM if share > HEAVY_SHARE else WARNING, "load", found, do)
    if watched.lately > LATELY_SHARE:
        found = f"{found}; the load average of the last minute is {watched.lately:.1f} per core"
        return Finding(NOTE, "load", found, "look again in a minute: something has just ended, or pauses")
    return Finding(OK, "load", found)


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


def memory(free: int) -> Finding:
    """Whether a framework fits, and large results."""
    found = f"{formats.size(free)} free"
    if free < LEAST_BYTES:
        return Finding(PROBLEM, "memory", found, "free some: a framework alone takes most of that")
    if free < FEW_BYTES:
        return Finding(WARNING, "memory", found, "large batches of large models are skipped; choose smaller ones")
    return Finding(OK, "memory", found)


def swap(used: int) -> Iterable[Finding]:
    """Whether memory was short, so that pages may have to come back from the disk inside the clock."""
    if used > SWAPPED_BYTES:
        do = "close what you do not need, then: sudo swapoff -a && sudo swapon -a"
        yield Finding(NOTE, "swap", f"{formats.size(used)} swapped out", do)


def disk(free: int) -> Finding:
    """Whether results can be written."""
    found = f"{formats.size(free)} free where results are written"
    if free < LEAST_DISK_BYTES:
        return Finding(PROBLEM, "disk", found, "free some, or write elsewhere with --results and --reports")
    return Finding(OK, "disk", found)


def cores(about: Mapping[str, Any]) -> Iterable[Finding]:
    """Whether all cores that the frameworks count can be used."""
    available, logical, quota = about["cores_available"], about["cores_logical"], about["cpu_quota"]
    throttled, bound = quota is not None and quota < available, bool(logical) and available < logical
    if throttled:
        do = f"frameworks start a thread per core and are throttled: run with --threads {max(1, int(quota))}"
        yield Finding(WARNING, "cores", f"the container may use {quota:g} of {available} cores", do)
    if bound:
        do = "widen the affinity mask, if you can: the others' work on the rest shares caches and memory"
        yield Finding(NOTE, "cores", f"this process may use {available} of {logical} cores", do)
    if not throttled and not bound:
        yield Finding(OK, "cores", f"{available}")


def frequency(policy: str | None) -> Finding:
    """Whether the clock rate stays the same."""
    if policy is None:
        return Finding(NOTE, "clock rate", "not told by this system, as in virtual machines", "measure more passes")
    if policy == "performance":
        return Finding(OK, "clock rate", f"policy {policy}")
    return Finding(WARNING, "clock rate", f"policy {policy}", "sudo cpupower frequency-set --governor performance")


def threads(limits: Mapping[str, str]) -> Finding:
    """Whether variables limit the threads of some frameworks and not of others."""
    if not limits:
        return Finding(OK, "thread limits", "none set")
    found = ", ".join(f"{name}={value}" for name, value in limits.items())
    return Finding(WARNING, "thread limits", found, f"unset {' '.join(limits)}; --threads limits all frameworks alike")
