"""Machines of a fleet, grouped by what decides how fast they are; and what is said where versions differ."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.analysis.compare import machine_differences
from harness.runner.look import Look


class FleetError(Exception):
    """A fleet that cannot be measured on; the message says why and what to do."""


@dataclass(frozen=True)
class Machine:
    """A machine that was looked at.

    Attributes:
        name: its host, with the name of its Dask worker if that has one.
        pergrad: the version of pergrad there, with a hash of its sources.
        findings: what disturbs it, as `harness.system.diagnostics` says it.
        most_workers: how many workers may stand ready there at the same time.
        cores: those that its workers may be bound to.
    """

    address: str
    name: str
    pergrad: str
    look: Look
    findings: tuple[Mapping[str, Any], ...]
    most_workers: int
    cores: tuple[int, ...]

    @staticmethod
    def from_json(address: str, values: Mapping[str, Any]) -> Machine:
        """The machine that `harness.fleet.machine.look` has described."""
        return Machine(
            address,
            values["name"],
            values["pergrad"],
            Look.from_json(values["look"]),
            tuple(values["findings"]),
            values["most_workers"],
            tuple(values["cores"]),
        )


@dataclass(frozen=True)
class Kind:
    """Machines that differ in nothing that matters: processor, cores, memory, GPU, versions."""

    label: str
    machines: tuple[Machine, ...]

    @property
    def look(self) -> Look:
        """What the first of them is."""
        return self.machines[0].look

    @property
    def most_workers(self) -> int:
        """How many workers may stand ready on each of them; those of one host share its memory."""
        hosts = Counter(machine.name.partition("/")[0] for machine in self.machines)
        each = [m.most_workers // hosts[m.name.partition("/")[0]] for m in self.machines]
        return max(2, min(each))

    @property
    def resource(self) -> str:
        """The resource, as Dask calls it, that heats for machines of this kind ask for."""
        card = self.look.machine
        first = self.machines[0]
        said = [self.label, card.get("processor"), first.pergrad, *_versions(first)]
        return f"pergrad-{hashlib.blake2b(json.dumps(said).encode(), digest_size=6).hexdigest()}"

    def has(self, machine: Machine) -> bool:
        """Whether a machine is one of them."""
        return _alike(self.machines[0], machine)


def kinds(machines: Iterable[Machine]) -> list[Kind]:
    """The kinds, those with most machines first, each with a label that no other has."""
    groups: list[list[Machine]] = []
    for machine in sorted(machines, key=lambda machine: machine.name):
        group = next((group for group in groups if _alike(group[0], machine)), None)
        if group:
            group.append(machine)
        else:
            groups.append([machine])
    groups.sort(key=len, reverse=True)
    labels = [label(group[0].look) for group in groups]
    return [
        Kind(f"{text}-{labels[: number + 1].count(text)}" if labels.count(text) > 1 else text, tuple(group))
        for number, (text, group) in enumerate(zip(labels, groups, strict=True))
    ]


def label(found: Look) -> str:
    """A short name of a kind that may be typed and is safe in a path: `epyc-7763-8-cores-31-gib`."""
    words = re.sub(
        r"\((r|tm)\)|\bcpu\b|\bprocessor\b|@.*|\b(intel|amd)\b", " ", str(found.machine["processor"]).lower()
    )
    gpus = found.gpus[0]["name"].lower() if found.gpus else ""
    cores, gib = found.machine["cores_available"], round(found.machine["memory_bytes"] / (1 << 30))
    said = f"{gpus} {words[:40]} {cores}-core{'s' if cores > 1 else ''} {gib}-gib"
    return re.sub(r"[^a-z0-9.]+", "-", said).strip("-")


def refuse_other_versions(machines: Sequence[Machine], here: str, across_versions: bool) -> None:
    """Refuse machines that differ in the version of pergrad or of a framework.

    Args:
        here: pergrad's version where this is asked.
        across_versions: whether they are taken all the same.

    Raises:
        FleetError: names what differs, and where.
    """
    differing = version_differences(machines, here)
    if differing and not across_versions:
        raise FleetError(
            f"versions differ between machines ({'; '.join(differing)}); install the same everywhere, or measure them "
            "all the same with --across-versions"
        )


def version_differences(machines: Sequence[Machine], here: str) -> list[str]:
    """In which versions machines differ: `jax 0.10.1 (a, b) and 0.11.0 (c)`."""
    found = []
    packages = sorted({package for machine in machines for package in _of(machine)})
    for package in ["pergrad", *packages]:
        by_version: dict[str, list[str]] = {}
        if package == "pergrad":
            by_version[here] = ["here"]
        for machine in machines:
            version = machine.pergrad if package == "pergrad" else _of(machine).get(package) or "none"
            by_version.setdefault(version, []).append(machine.name)
        if len(by_version) > 1:
            said = [f"{version} ({_few(names)})" for version, names in by_version.items()]
            found.append(f"{package} {' and '.join(said)}")
    return found


def price_of(prices: Mapping[str, float], found: Sequence[Kind]) -> dict[str, float]:
    """Label -> price per hour, where a price was given for a kind by its label or a part that no other kind has.

    Raises:
        FleetError: if what was given is part of no label, or of several.
    """
    known = ", ".join(kind.label for kind in found)
    matched = {}
    for given, price in prices.items():
        labels = [kind.label for kind in found if kind.label == given] or [
            kind.label for kind in found if given.lower() in kind.label
        ]
        if len(labels) != 1:
            which = "several of the kinds" if labels else "none of the kinds"
            raise FleetError(f"--price {given}={price:g}: {given!r} is part of {which} of this cluster: {known}")
        matched[labels[0]] = price
    return matched


def refuse_missing_cores(machines: Sequence[Machine], cpus: Sequence[int] | None) -> None:
    """Refuse machines that lack a core that `--cpus` names.

    Raises:
        FleetError: names the first of them.
    """
    for machine in machines:
        if cpus and not set(cpus) <= set(machine.cores):
            raise FleetError(
                f"--cpus {','.join(map(str, cpus))}: {machine.name} has {','.join(map(str, machine.cores))}; "
                "name cores that all machines have, or limit the frameworks with --threads"
            )


def _alike(one: Machine, other: Machine) -> bool:
    same_machine = not machine_differences(one.look.machine, other.look.machine)
    return same_machine and one.pergrad == other.pergrad and _of(one) == _of(other)


def _of(machine: Machine) -> Mapping[str, str]:
    """Versions of what the machine measures with; Python is one, since another one is another interpreter."""
    return {"python": str(machine.look.machine.get("python")), **machine.look.versions}


def _versions(machine: Machine) -> list[str]:
    return [f"{package} {version}" for package, version in sorted(_of(machine).items())]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
