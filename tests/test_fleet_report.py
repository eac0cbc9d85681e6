"""What a report says of several machines: by hand for few rows, by its known size for many."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import report
from harness.analysis import machines, panels
from harness.core import store
from harness.core.records import Measurement
from harness.report.data import fleet
from tests import made_runs

LOOP = {"tf1/session-loop": 30_000.0}


def run_on(folder: Path, kind: str, microseconds: Mapping[str, float], price: float | None = None) -> Path:
    """A run of the whole plan on one kind, as `--each` makes it."""
    about = {"mode": "each", "kind": kind, "price_per_hour": price, "machines": []}
    store.create(folder, {**made_runs.info(list(microseconds), baseline="tf1/session-loop"), "fleet": about})
    rng = np.random.default_rng(0)
    for name, time in microseconds.items():
        for number in (1, 2):
            store.append(folder, made_runs.ok(name, 64, number, made_runs.noisy(rng, time, 40), machine=f"{kind}/1"))
    return folder


def said_of(folders: Sequence[Path]) -> fleet.Fleet:
    runs = [store.load(folder) for folder in folders]
    return fleet.gather(panels.run_names(runs), runs, panels.panels(runs))


def test_the_winner_on_each_kind_where_the_order_differs_and_what_money_buys(tmp_path: Path) -> None:
    one = run_on(tmp_path / "x-epyc", "epyc", LOOP | {"jax/vmap": 100, "torch/func-vmap": 900})
    two = run_on(tmp_path / "x-h200", "h200", LOOP | {"jax/vmap": 1000, "torch/func-vmap": 10}, 2.0)

    found = said_of([one, two])

    (line,) = found.lines
    assert found.kinds == ("epyc", "h200")
    assert (line.place, line.batch_size) == ("policy, gradients, cpu", 64)
    assert [winner.strategy for winner in line.winners] == ["jax/vmap", "torch/func-vmap"]
    assert line.order.startswith("on h200 jax/vmap is ")
    assert 90 < float(line.order.split()[4]) < 110
    million = 3600 * 64 / 10e-6 / 1e6
    buys = [float(word.replace(",", "")) for word in line.winners[1].buys.split() if word[0].isdigit()]
    assert buys[0] == pytest.approx(million, rel=0.1)
    assert buys[1] == pytest.approx(million / 2, rel=0.1)
    assert "price" not in line.winners[0].buys


def test_an_order_that_only_noise_changes_does_not_differ(tmp_path: Path) -> None:
    one = run_on(tmp_path / "x-a", "a", LOOP | {"jax/vmap": 100, "torch/func-vmap": 101})
    two = run_on(tmp_path / "x-b", "b", LOOP | {"jax/vmap": 101, "torch/func-vmap": 100})

    assert said_of([one, two]).differing == 0


def test_page_and_summary_have_the_kinds_side_by_side(tmp_path: Path) -> None:
    one = run_on(tmp_path / "x-epyc", "epyc", LOOP | {"jax/vmap": 100})
    two = run_on(tmp_path / "x-h200", "h200", LOOP | {"jax/vmap": 10}, 2.0)

    page = report.write([one, two], tmp_path / "report").read_text()

    summary = (tmp_path / "report" / "summary.md").read_text()
    assert 'id="machines"' in page
    assert "million instances an hour" in page
    assert "The fastest on each kind of machine" in summary
    assert 'id="machines"' not in report.write([one], tmp_path / "alone").read_text()


def rows(within: float, between: float, cases: int = 300) -> list[Measurement]:
    """Two machines, three processes of each case; ratios to the baseline have these standard deviations."""
    rng = np.random.default_rng(5)
    found = []
    for case in range(cases):
        effects = {name: rng.normal(0, between) for name in "ab"}
        for number, machine in enumerate("aab", start=1):
            slow = 1.25 if machine == "b" else 1.0
            base = 1e-3 * slow
            time = 2 * base * math.exp(effects[machine] + rng.normal(0, within))
            common: dict[str, Any] = {"machine": machine, "heat": 10 * case + number, "baseline_s": base}
            place = {"workload": f"w{case}", **common}
            found.append(made_runs.ok("jax/vmap", 8, number, [int(time * 1e9)], **place))
            found.append(made_runs.ok("tf1/loop", 8, number, [int(base * 1e9)], **place))
    return found


def test_noise_between_machines_is_told_from_noise_on_one() -> None:
    found = machines.compare(rows(within=0.01, between=0.05))

    assert found is not None
    assert (found.pairs_same, found.pairs_other) == (300, 600)
    assert math.log(found.within or 0) == pytest.approx(0.01, rel=0.2)
    assert math.log(found.between or 0) == pytest.approx(0.05, rel=0.2)
    assert found.slowness["b"] / found.slowness["a"] == pytest.approx(1.25, rel=0.02)


def test_equal_machines_add_next_to_nothing() -> None:
    found = machines.compare(rows(within=0.02, between=0.0))

    assert found is not None
    assert found.between is not None
    assert math.log(found.between) < 0.01


def test_one_machine_says_nothing_of_others() -> None:
    assert machines.compare([row for row in rows(0.01, 0.05, 3) if row.machine == "a"]) is None


def test_a_run_that_several_machines_shared_says_what_they_add(tmp_path: Path) -> None:
    store.create(tmp_path / "x", {**made_runs.info(["jax/vmap", "tf1/loop"], baseline="tf1/loop")})
    for row in rows(0.01, 0.05, 30):
        store.append(tmp_path / "x", row)

    (notice,) = said_of([tmp_path / "x"]).notices

    assert "divided among 2 machines" in notice
    assert "machines add" in notice
