"""The machines of one kind with what is left for them to measure, and the heats that are on their way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from distributed import Future

from harness.fleet.kinds import Kind, Machine
from harness.runner import plan
from harness.runner.ledger import Ledger
from harness.runner.one_heat import Heat


@dataclass
class Team:
    """The machines of one kind, and the run that is measured on them."""

    ledger: Ledger
    kind: Kind
    carried: Mapping[str, bytes] = field(default_factory=dict)
    ready: dict[str, Machine] = field(default_factory=dict)
    flying: dict[Future, Flight] = field(default_factory=dict)
    again: deque[Flight] = field(default_factory=deque)
    references: dict[tuple[str, int], Future] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.heats = self._heats()

    def _heats(self) -> Iterator[Heat]:
        """What is left to measure, decided as late as possible."""
        ledger, most = self.ledger, self.kind.most_workers
        nowhere: dict[str, dict[int, str]] = {name: {} for name in ledger.wanted.workloads}
        for group in plan.groups(ledger.wanted, ledger.chosen, nowhere, most):
            for number in range(len(group.heats)):
                if heat := ledger.heat(group, number):
                    yield heat

    def next(self) -> Flight | None:
        """The next heat, one that has lost its machine first; None if there is none left."""
        if self.again:
            return self.again.popleft()
        heat = next(self.heats, None)
        return Flight(heat, self.ledger.next_heat()) if heat else None


@dataclass(eq=False)
class Flight:
    """A heat on its way: its number in the run, and the machines that have begun it."""

    heat: Heat
    number: int
    begun: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """`cnn B=16 pass 1`."""
        task = self.heat.tasks[0]
        return f"{task.workload} B={task.batch_sizes[0]} pass {task.pass_number}"
