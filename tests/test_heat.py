"""Heats: who takes a turn, when a case has had enough, and that heats can be compared, on made-up workers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis import heats
from harness.core.records import FEWEST_ROUNDS, Measurement, Status
from harness.core.task import Task
from harness.runner import heat
from harness.runner.case_run import TURN_S

TASK = Task(
    strategy="jax/vmap",
    framework="jax",
    plugin="",
    workload="policy",
    quantity="gradients",
    device="cpu",
    dtype="float32",
    batch_sizes=(4,),
    pass_number=1,
    references={},
    seed=0,
    limit_s=60,
    target_s=1.0,
)


@dataclass
class MadeUp:
    """A case whose calls take what a machine of changing speed makes of them; no process behind it."""

    name: str
    call_s: float
    log: list[str]
    noise: float = 0.0
    fails_at: int | None = None
    refuses: bool = False
    turns: list[float] = field(default_factory=list)
    timed_s: float = 0.0

    @property
    def task(self) -> Task:
        return replace(TASK, strategy=self.name, framework=self.name.split("/")[0])

    def begin(self) -> Measurement | None:
        return self.row(Status.UNSUPPORTED) if self.refuses else None

    def turn(self) -> Measurement | None:
        self.log.append(self.name)
        if len(self.turns) == self.fails_at:
            return self.row(Status.CRASHED)
        factor = float(np.exp(self.noise * np.random.default_rng(len(self.log)).standard_normal()))
        self.turns.append(self.call_s * factor)
        self.timed_s += max(TURN_S, self.call_s)
        return None

    def end(self, rule: str) -> Measurement:
        return replace(self.row(Status.OK), stopping_rule=rule, median_s=float(np.median(self.turns)))

    def row(self, status: Status) -> Measurement:
        return self.task.row(4, status)


def run(*cases: MadeUp, baseline: str = "tf1/loop", precision: float = 0.02) -> dict[str, Measurement]:
    made: Any = list(cases)
    return {row.strategy: row for row in heat.run(made, baseline, precision, random.Random(1))}


def test_in_every_round_everyone_takes_one_turn_and_the_order_changes() -> None:
    log: list[str] = []
    run(*(MadeUp(f"jax/{letter}", 0.01, log, noise=0.5) for letter in "abcd"))

    rounds = [log[start : start + 4] for start in range(0, 20, 4)]
    assert all(sorted(names) == ["jax/a", "jax/b", "jax/c", "jax/d"] for names in rounds)
    assert len({tuple(names) for names in rounds}) > 1


def test_a_case_ends_when_its_ratios_are_known_and_the_best_goes_on() -> None:
    log: list[str] = []
    best = MadeUp("jax/best", 0.01, log)
    rows = run(best, MadeUp("jax/other", 0.02, log), MadeUp("tf1/loop", 0.03, log))

    assert rows["jax/other"].stopping_rule == "precision"
    assert rows["tf1/loop"].stopping_rule == "precision"
    assert rows["jax/best"].stopping_rule == "time"
    assert log.count("jax/other") == heat.ROUNDS_THAT_TELL_PRECISION


def test_a_noisy_case_goes_on_until_its_time_is_over() -> None:
    log: list[str] = []
    rows = run(MadeUp("jax/best", 0.01, log), MadeUp("jax/noisy", 0.02, log, noise=0.3), MadeUp("tf1/loop", 0.03, log))

    assert rows["jax/noisy"].stopping_rule == "time"
    assert log.count("jax/noisy") == 20


def test_a_hopeless_case_gets_the_fewest_rounds_unless_it_is_the_best_of_its_framework() -> None:
    log: list[str] = []
    names = {"jax/best": 0.001, "torch/best": 0.02, "torch/slow": 0.05, "tf1/loop": 0.9}
    rows = run(*(MadeUp(name, seconds, log, noise=0.2) for name, seconds in names.items()))

    assert rows["torch/slow"].stopping_rule == "hopeless"
    assert rows["torch/best"].stopping_rule == "time"
    assert log.count("torch/slow") == FEWEST_ROUNDS


def test_who_fails_leaves_the_others_alone() -> None:
    log: list[str] = []
    rows = run(
        MadeUp("jax/best", 0.01, log),
        MadeUp("jax/dies", 0.02, log, fails_at=2),
        MadeUp("jax/refuses", 0.02, log, refuses=True),
    )

    assert [rows[name].status for name in ("jax/best", "jax/dies", "jax/refuses")] == ["ok", "crashed", "unsupported"]
    assert log.count("jax/dies") == 3
    assert "jax/refuses" not in log


def test_every_row_tells_the_baseline_of_its_heat() -> None:
    rows = run(MadeUp("jax/best", 0.01, []), MadeUp("tf1/loop", 0.03, []))

    assert {row.baseline_s for row in rows.values()} == {0.03}


def test_without_anyone_left_there_is_no_round() -> None:
    assert run(MadeUp("jax/a", 0.01, [], refuses=True))["jax/a"].status is Status.UNSUPPORTED


def timed(strategy: str, number: int, median_s: float, baseline_s: float | None = None) -> Measurement:
    row = replace(TASK, strategy=strategy, pass_number=number).row(4, Status.OK)
    return replace(row, heat=number, median_s=median_s, baseline_s=baseline_s)


@given(st.lists(st.floats(0.5, 2), min_size=2, max_size=4), st.integers(0, 1000))
def test_the_speed_of_the_machine_in_each_heat_is_found_from_strategies_of_several(
    speeds: list[float], seed: int
) -> None:
    times = np.random.default_rng(seed).uniform(1e-5, 1e-1, size=7)
    rows = [
        timed(f"jax/{name}", number, float(time * speed))
        for number, speed in enumerate(speeds, start=1)
        for name, time in enumerate(times)
    ]
    found = heats.slowness(rows)

    for number, speed in enumerate(speeds, start=1):
        assert found[number] / found[1] == pytest.approx(speed / speeds[0], rel=1e-6)


def test_heats_that_share_no_strategy_are_joined_by_their_baseline() -> None:
    rows = [timed("jax/a", 1, 0.01, baseline_s=0.1), timed("jax/b", 2, 0.01, baseline_s=0.2)]
    found = heats.slowness(rows)

    assert found[2] / found[1] == pytest.approx(2)


def test_rows_of_runs_without_heats_stay_as_they_are() -> None:
    assert heats.slowness([replace(timed("jax/a", 1, 0.01), heat=None)]) == {}


def test_one_disturbed_strategy_does_not_make_a_heat_slow() -> None:
    rows = [timed(f"jax/{name}", number, 0.01) for number in (1, 2) for name in range(5)]
    rows[-1] = replace(rows[-1], median_s=0.05)

    assert heats.slowness(rows) == {1: pytest.approx(1.0), 2: pytest.approx(1.0)}
