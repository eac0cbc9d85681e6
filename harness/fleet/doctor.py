"""`pergrad doctor --cluster`: the machines of a cluster, their kinds, and what is wrong with each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.core.framework import framework_names
from harness.fleet import files, kinds
from harness.fleet.cluster import connected
from harness.fleet.kinds import Kind
from harness.fleet.members import Members
from harness.fleet.run import asked
from harness.runner.plan import Plan
from harness.system.diagnostics import NOTE, OK, PROBLEM


@dataclass(frozen=True)
class Checkup:
    """What was found of a cluster.

    Attributes:
        faults: machine -> why it cannot be measured on.
        versions: what differs between machines, or between them and this one.
        dashboard: where Dask shows what the cluster is at.
    """

    kinds: tuple[Kind, ...]
    faults: dict[str, str]
    versions: tuple[str, ...]
    dashboard: str

    @property
    def ok(self) -> bool:
        """Whether every machine could be measured on, and its times could be trusted."""
        problems = any(
            finding["level"] == PROBLEM for kind in self.kinds for one in kind.machines for finding in one.findings
        )
        return not (self.faults or self.versions or problems)

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "ok": self.ok,
            "dashboard": self.dashboard,
            "faults": self.faults,
            "versions": list(self.versions),
            "kinds": [
                {
                    "label": kind.label,
                    "machine": dict(kind.look.machine),
                    "machines": [{"name": one.name, "findings": list(one.findings)} for one in kind.machines],
                }
                for kind in self.kinds
            ],
        }

    def text(self) -> str:
        """Each kind with its machines, and below each what is worth saying of it."""
        lines = [f"dashboard: {self.dashboard}"]
        for kind in self.kinds:
            card = kind.look.machine
            gpus = "".join(f", {gpu['name']}" for gpu in kind.look.gpus)
            gib = card["memory_bytes"] / (1 << 30)
            lines += ["", f"{kind.label}: {card['processor']}, {card['cores_available']} cores, {gib:.0f} GiB{gpus}"]
            for one in kind.machines:
                told = [finding for finding in one.findings if finding["level"] not in (OK, NOTE)]
                lines.append(f"  {one.name}{'' if told else ': ready to measure'}")
                for finding in told:
                    lines.append(f"    {finding['level']:<8} {finding['what']}: {finding['found']}")
                    lines += [f"    {'':<8} do: {finding['do']}"] if finding["do"] else []
        if self.faults or self.versions:
            lines.append("")
        lines += [f"{PROBLEM:<8} {name}: {why}" for name, why in self.faults.items()]
        lines += [f"{PROBLEM:<8} versions: {difference}" for difference in self.versions]
        return "\n".join(lines)


def examine(cluster: str) -> Checkup:
    """Look at every machine of a cluster.

    Raises:
        FleetError: if there is no cluster, or none of its machines can be looked at.
    """
    with connected(cluster) as client:
        wanted = asked(framework_names(), None, Plan((), (), ("cpu",)))
        members = Members(client, {**wanted, "ceilings": False})
        machines = members.gather()
        return Checkup(
            tuple(kinds.kinds(machines)),
            members.faults,
            tuple(kinds.version_differences(machines, files.version())),
            str(client.dashboard_link),
        )
