"""What the report concludes: claims, needs, costs, overtakings, published numbers, sides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness import report
from harness.analysis import panels as grouped
from harness.analysis import statistics
from harness.analysis.crossover import crossovers
from harness.core.records import Measurement, Status
from harness.core.store import Run
from harness.report.data import claims, costs, needs, published, side_by_side
from harness.report.data.claims import CLAIMS, Claim, Finding, Ruling
from harness.report.data.evidence import Evidence
from harness.report.data.published import ENTRIES
from harness.report.html import page
from tests import made_runs
from tests.made_runs import failed, ok

BASE = "tf1/session-loop"
UNSTACK = "tf1/unstack"
PLAIN = "jax/batch-gradient"

SUMMED, CONCURRENT, TWICE, LINEAR, CHEAP = range(5)
"""The claims in their order."""


def around(microseconds: float) -> list[int]:
    return [int(microseconds * 1000 * (1 + step / 1000)) for step in range(-5, 6)]


def case(strategy: str, batch_size: int, microseconds: float, **changes: Any) -> Measurement:
    return ok(strategy, batch_size, 1, around(microseconds), **changes)


def plain(batch_size: int, microseconds: float, **changes: Any) -> Measurement:
    return case(PLAIN, batch_size, microseconds, quantity="weighted_sum", **{"output_bytes": 180} | changes)


def panels_of(*rows: Measurement, **info: Any) -> list[grouped.Panel]:
    """Of a run whose second process of everything shows what the first one did, with a noise floor of 20 %."""
    both = (*rows, *(replace(row, pass_number=2) for row in rows))
    panels = grouped.panels([Run(Path("made"), {"baseline": BASE, **info}, both)])
    return [replace(panel, floor=grouped.NoiseFloor(1.2, 1, "processes")) for panel in panels]


def finding(number: int, *rows: Measurement) -> Finding:
    return claims.judge(Evidence.of(panels_of(*rows)))[number].finding


class TestClaims:
    def test_without_the_cases_it_needs_a_claim_is_not_measured_and_says_what_it_takes(self) -> None:
        judged = claims.judge(Evidence.of([]))

        assert len(judged) == 5
        assert {one.finding.ruling for one in judged} == {Ruling.NOT_MEASURED}
        assert all(one.claim.needs in one.finding.numbers for one in judged)

    @pytest.mark.parametrize(("grown", "ruling"), [(180, Ruling.HOLDS), (46_080, Ruling.FAILS)])
    def test_the_gradient_comes_back_summed_if_its_size_does_not_grow(self, grown: int, ruling: Ruling) -> None:
        assert finding(SUMMED, plain(1, 50), plain(256, 60, output_bytes=grown)).ruling is ruling

    @pytest.mark.parametrize(
        ("microseconds", "ruling"),
        [(400, Ruling.HOLDS), (1000, Ruling.FAILS), (2000, Ruling.FAILS), (833, Ruling.UNDECIDED)],
    )
    def test_concurrency_helps_if_it_is_faster_beyond_the_noise(self, microseconds: float, ruling: Ruling) -> None:
        rows = [case(BASE, 256, 1000), case("tf1/concurrent-sessions", 256, microseconds)]

        assert finding(CONCURRENT, *rows).ruling is ruling

    @pytest.mark.parametrize(("best", "ruling"), [(600, Ruling.HOLDS), (300, Ruling.FAILS), (500, Ruling.UNDECIDED)])
    def test_unstack_is_at_most_twice_as_fast_by_its_best_batch_size(self, best: float, ruling: Ruling) -> None:
        # given the loop at 1000 µs, unstack hardly faster at one batch size and better at another
        rows = [case(BASE, size, 1000) for size in (4, 16)] + [case(UNSTACK, 4, 900), case(UNSTACK, 16, best)]
        # then the best counts, whichever it is
        assert finding(TWICE, *rows).ruling is ruling

    @pytest.mark.parametrize(("power", "ruling"), [(1.0, Ruling.HOLDS), (0.5, Ruling.FAILS), (0.9, Ruling.UNDECIDED)])
    def test_beyond_five_the_exponent_decides(self, power: float, ruling: Ruling) -> None:
        # given a loop, and unstack whose time below five follows another law
        sizes = (1, 4, 16, 64, 256)
        rows = [case(BASE, size, 500 * size) for size in sizes]
        rows += [case(UNSTACK, size, 400 if size < 5 else 100 * size**power) for size in sizes]
        # then only what lies beyond five counts
        assert finding(LINEAR, *rows).ruling is ruling

    @pytest.mark.parametrize(("microseconds", "ruling"), [(100, Ruling.HOLDS), (50_000, Ruling.FAILS)])
    def test_far_cheaper_is_ten_times_at_hundreds_of_instances(self, microseconds: float, ruling: Ruling) -> None:
        assert finding(CHEAP, case(BASE, 256, 100_000), plain(256, microseconds)).ruling is ruling

    def test_a_handful_of_instances_does_not_decide_about_hundreds(self) -> None:
        assert finding(CHEAP, case(BASE, 16, 100_000), plain(16, 100)).ruling is Ruling.NOT_MEASURED

    def test_a_claim_is_data_and_another_can_be_added(self) -> None:
        mine = Claim("Water is wet.", "me", "nothing", lambda evidence: Finding(Ruling.HOLDS, "It is."))

        judged = claims.judge(Evidence.of([]), [*CLAIMS, mine])

        assert judged[-1].finding == Finding(Ruling.HOLDS, "It is.")

    def test_strategies_that_are_wrong_decide_nothing(self) -> None:
        wrong = failed("tf1/concurrent-sessions", 256, 1, Status.DISAGREES, "0 digits", samples_ns=(1,))

        assert finding(CONCURRENT, case(BASE, 256, 1000), wrong).ruling is Ruling.NOT_MEASURED


class TestPublished:
    def test_a_figure_known_from_an_abstract_is_not_repeated(self) -> None:
        unread = [entry for entry in ENTRIES if "abstract" in entry.published]

        assert len(unread) == 2
        assert not [entry for entry in unread if any(figure in entry.published for figure in ("50", "54", "94"))]

    def test_ratios_stand_side_by_side_with_workload_and_batch_size(self) -> None:
        rows = [
            case("torch/grad-loop", 64, 26_000, workload="functorch-cnn"),
            case("torch/func-vmap", 64, 1000, workload="functorch-cnn"),
        ]

        (first, *others) = published.side_by_side(Evidence.of(panels_of(*rows)))

        assert first.here == (
            "26 times faster [25.9, 26.1]: torch/func-vmap against torch/grad-loop on functorch-cnn at batch size 64",
        )
        assert {other.here for other in others} == {("not measured",)}


class TestNeeds:
    def test_each_framework_has_its_best_and_the_fastest_leads(self) -> None:
        rows = [case(BASE, 64, 900), case("jax/vmap", 64, 50), case("jax/slow", 64, 500), plain(64, 10)]

        found = needs.decide(Evidence.of(panels_of(*rows)), "policy")

        assert found is not None
        assert found.frameworks == ("tf1", "jax")
        by_need = {row.need.quantity: row.best for row in found.rows}
        assert (by_need["gradients"]["jax"].strategy, by_need["gradients"]["jax"].leads) == ("jax/vmap", True)
        assert not by_need["gradients"]["tf1"].leads
        assert by_need["weighted_sum"]["jax"].strategy == PLAIN
        assert by_need["norms"] == {}
        assert "jax/batch-gradient takes 10 µs, 5 times faster" in found.advice

    def test_a_sum_of_rows_is_no_proof_that_rows_are_not_needed(self) -> None:
        summed = case("jax/vmap-weighted-sum", 64, 60, quantity="weighted_sum")

        found = needs.decide(Evidence.of(panels_of(case("jax/vmap", 64, 50), summed)), "policy")

        assert found is not None
        assert "This run did not measure it" in found.advice

    @pytest.mark.parametrize(
        ("microseconds", "said"),
        [
            (25, "no row is needed: jax/batch-gradient takes 25 µs, 2 times faster"),
            (
                50,
                "Here that saves no time: jax/batch-gradient takes 50 µs, which cannot be told from the fastest rows.",
            ),
            (100, "Here the rows are the cheaper way all the same: jax/batch-gradient takes 100 µs, 2 times slower"),
        ],
    )
    def test_a_plain_gradient_is_praised_for_what_it_saves_only(self, microseconds: int, said: str) -> None:
        found = needs.decide(Evidence.of(panels_of(case("jax/vmap", 64, 50), plain(64, microseconds))), "policy")

        assert found is not None
        assert said in found.advice

    def test_with_rows_alone_it_says_that_the_rest_was_not_measured(self) -> None:
        found = needs.decide(Evidence.of(panels_of(case(BASE, 64, 900))), "policy")

        assert found is not None
        assert "This run did not measure it" in found.advice

    def test_a_workload_without_a_time_has_no_table(self) -> None:
        assert needs.decide(Evidence.of([]), "policy") is None


class TestCosts:
    def test_every_cost_comes_from_the_largest_batch_size_reached(self) -> None:
        # given a workload of 45 parameters, a baseline, a strategy, and a plain gradient of the same framework
        info = {"workloads": [{"name": "policy", "parameter_count": 45}]}
        paid = {"build_s": 0.5, "first_call_s": 0.5}
        rows = [
            case(BASE, 16, 10_000, build_s=0.0, first_call_s=0.0),
            case("jax/vmap", 4, 100, **paid),
            case("jax/vmap", 16, 100, floor_s=25e-6, peak_bytes=28_800, **paid),
            plain(16, 50),
        ]
        rows_panel, *others = panels_of(*rows, **info)
        # when the costs are asked for
        found = {cost.strategy: cost for cost in costs.costs(rows_panel, others)}["jax/vmap"]
        # then each follows from its definition
        assert found.batch_size == 16
        assert found.per_instance_s == pytest.approx(100e-6 / 16)
        assert found.over_plain == pytest.approx(2)
        assert found.ceiling_share == pytest.approx(0.25)
        assert found.over_memory_floor == pytest.approx(28_800 / (16 * 45 * 4))
        assert found.once_s == pytest.approx(1.0)
        assert found.pays_after == 102  # 1 s over 9.9 ms a call
        assert found.exponent is not None
        assert found.exponent.value == pytest.approx(0, abs=0.01)

    def test_what_was_not_measured_anywhere_is_said_once_instead_of_in_every_line(self) -> None:
        (panel,) = panels_of(case(BASE, 16, 10_000, peak_bytes=None))

        found = costs.table(costs.costs(panel))

        assert {"over plain", "of ceiling", "peak memory"} <= set(found.missing)
        assert not set(found.headings) & set(found.missing)

    def test_leaders_that_change_places_are_named_with_the_batch_size_and_its_interval(self) -> None:
        # given one strategy of constant time and one that grows with B, equal at B = 16
        rows = [case("a/flat", size, 160) for size in (1, 4, 64, 256)]
        rows += [case("b/grows", size, 10 * size) for size in (1, 4, 64, 256)]
        (panel,) = panels_of(*rows)
        # then they change places at 16
        (found,) = costs.overtakings(panel)
        assert (found.before, found.after) == ("b/grows", "a/flat")
        assert found.batch_size.value == pytest.approx(16, rel=0.01)
        assert found.batch_size.low is not None
        assert found.batch_size.high is not None
        assert found.batch_size.low <= 16.1
        assert found.batch_size.high >= 15.9

    def test_a_lead_within_the_noise_is_no_lead(self) -> None:
        flat = [statistics.estimate([around(100)], seed) for seed in range(3)]
        near = [statistics.estimate([around(time)], seed) for seed, time in enumerate((105, 100, 95), start=9)]

        assert crossovers([1, 2, 4], flat, near, floor=1.1) == []


class TestSides:
    @pytest.mark.parametrize("dimension", ["allocator", "device"])
    def test_one_case_under_two_conditions_is_one_line(self, dimension: str) -> None:
        rows = [case("jax/vmap", 4, 1000), case("jax/vmap", 4, 500, **{dimension: "other"})]

        (found,) = side_by_side.sides(panels_of(*rows), dimension)

        assert found.conditions[1] == "other"
        ((name, cells),) = found.rows
        assert name == "jax/vmap"
        assert cells[0] == ("1 ms", "")
        assert cells[1][0] == "500 µs"
        assert cells[1][1].startswith("2× faster [")

    def test_differences_within_the_noise_floor_are_ties(self) -> None:
        rows = [case("jax/vmap", 4, 1000), case("jax/vmap", 4, 1010, allocator="reuse")]

        (found,) = side_by_side.sides(panels_of(*rows), "allocator")

        assert found.rows[0][1][1] == ("1.01 ms", "a tie")


class TestFiles:
    def test_every_table_of_the_page_lies_beside_it_as_csv(self, tmp_path: Path) -> None:
        index = report.write([made_runs.normal(tmp_path / "run", passes=1, rounds=5)], tmp_path / "report")

        tables = {name: pd.read_csv(index.parent / name) for name in page.CSV_FILES}

        assert len(tables["cases.csv"]) == 35
        assert len(tables["costs.csv"]) == 7
        assert len(tables["claims.csv"]) == len(CLAIMS)
        assert len(tables["published.csv"]) == len(ENTRIES)
        assert tables["costs.csv"]["time_s"].dtype.kind == "f"

    def test_the_summary_holds_answer_needs_and_claims_and_no_markup_of_others(self, tmp_path: Path) -> None:
        normal = report.write([made_runs.normal(tmp_path / "n", passes=1, rounds=5)], tmp_path / "normal")
        ugly = report.write([made_runs.ugly(tmp_path / "u")], tmp_path / "ugly")

        text, hostile = ((index.parent / "summary.md").read_text() for index in (normal, ugly))

        assert text.startswith("# For policy at batch size 256, use jax/vmap")
        assert "## What do you need?" in text
        assert "✕ does not hold here" in text
        assert "<script" not in hostile.replace("\\<script", "")

    def test_a_report_of_all_quantities_has_them_in_the_section_of_their_workload(self, tmp_path: Path) -> None:
        run = made_runs.quantities(tmp_path / "run")

        html = report.write([run], tmp_path / "report").read_text()

        assert html.count("<h3>Without the rows</h3>") == 2  # once per allocator
        assert "A weighted sum, batch size 256" in html
        assert "×</td>" in html  # over plain


def test_a_gain_within_the_noise_floor_makes_no_claim_hold() -> None:
    rows = [case(BASE, 256, 100), case("tf1/concurrent-sessions", 256, 75)]
    (panel,) = panels_of(*rows)
    loud = replace(panel, floor=replace(panel.floor, factor=1.5))

    found = claims.judge(Evidence.of([loud]))[CONCURRENT].finding
    assert found.ruling is Ruling.FAILS
    assert "a difference within the noise" in found.numbers
