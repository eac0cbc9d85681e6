"""`pergrad check`: what a strategy's author reads before anything is measured."""

from __future__ import annotations

import inspect
import json
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from harness.cli import checkup
from harness.cli.app import app
from harness.cli.checkup import Checkup, describe, inside_the_clock
from harness.core import find_strategies, find_workloads
from harness.core.records import Measurement, Status
from harness.core.strategy import Strategy
from harness.measure import case
from harness.measure.contract import CONTRACT
from harness.reference import compare, diagnose
from tests.conftest import PLANTED, installed

STRATEGIES = find_strategies.discover().strategies


def check(stem: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["check", str(PLANTED / f"{stem}.py"), "--workload", "policy", *options])


def a_row(status: Status, broken: str = "") -> Measurement:
    return Measurement(
        workload="policy",
        strategy="numpy/honest",
        framework="numpy",
        quantity="gradients",
        device="cpu",
        dtype="float32",
        batch_size=1,
        pass_number=1,
        status=status,
        broken=broken,
    )


def test_a_right_strategy_is_told_so_with_what_was_checked() -> None:
    result = check("honest")

    assert result.exit_code == 0, result.output
    assert "numpy/honest: right; 2 of 2 cases ok" in result.output
    assert all(f"passed       {name}: {promise.means}" in result.output for name, promise in CONTRACT.items())


@pytest.mark.parametrize(
    ("stem", "promise", "cause"),
    [
        ("divided_by_batch_size", "rows", "every row is divided by the batch size"),
        ("rows_swapped", "rows", "in another order"),
        ("summed_over_batch", "rows", "summed over the batch"),
        ("one_row_zero", "rows", "the row of instance 2 is zero"),
        ("transposed", "rows", "hidden1.weight transposed"),
        ("batch_axis_lost", "shape", "expected (5, "),
        ("parameter_missing", "names", "missing: hidden2.bias"),
        ("mutated_parameter", "unchanged", "changed by the calls"),
        ("cached_by_value", "fresh batches", "cached"),
    ],
)
def test_a_broken_promise_is_named_with_its_likely_cause_and_what_to_do(stem: str, promise: str, cause: str) -> None:
    result = check(stem)

    assert result.exit_code == 1
    assert f"failed       {promise}: " in result.output
    assert cause in result.output
    assert f"what to do: {CONTRACT[promise].hint}" in result.output


def test_the_same_as_json_says_where(tmp_path: Path) -> None:
    result = check("rows_swapped", "--json")

    (found,) = json.loads(result.stdout)
    assert not found["ok"]
    assert found["requirements"]["names"] == "passed"
    assert found["requirements"]["rows"] == "failed"
    (worst,) = [case for case in found["cases"] if case["batch_size"] == 5]
    assert worst["worst_parameter"]
    assert worst["worst_instance"] in (0, 1)


def test_an_exception_is_shown_with_the_end_of_its_traceback() -> None:
    result = check("raises")

    assert result.exit_code == 1
    assert "the moon is in the wrong quarter" in result.output
    assert "raises.py" in result.output


def test_a_check_of_nothing_says_how_to_check_something() -> None:
    result = CliRunner().invoke(app, ["check"])

    assert result.exit_code == 2
    assert "--all" in result.output


def test_an_unknown_strategy_suggests_the_nearest_name() -> None:
    result = CliRunner().invoke(app, ["check", "jax/vmpa"])

    assert result.exit_code == 2
    assert "did you mean 'jax/vmap'" in result.output


def test_a_file_without_a_strategy_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n")

    result = CliRunner().invoke(app, ["check", str(tmp_path / "empty.py")])

    assert result.exit_code == 2
    assert "decorate a function with @strategy" in result.output


def test_promises_after_a_broken_one_are_not_reached() -> None:
    honest = next(s for s in find_strategies.discover([PLANTED / "honest.py"]).strategies if s.name == "numpy/honest")

    states = Checkup(honest, (a_row(Status.DISAGREES, broken="rows"),)).requirements()

    assert states["shape"] == "passed"
    assert states["rows"] == "failed"
    assert states["doubling"] == "not reached"


def test_an_exception_says_nothing_of_any_promise() -> None:
    honest = next(s for s in find_strategies.discover([PLANTED / "honest.py"]).strategies if s.name == "numpy/honest")

    assert set(Checkup(honest, (a_row(Status.ERROR),)).requirements().values()) == {"not reached"}


def test_every_small_variant_of_a_builtin_workload_is_checked() -> None:
    names = [workload.name for workload in checkup.small_workloads()]

    assert names[0] == "policy"
    assert {"cnn-small", "transformer-small", "lstm-small", "embedding-small"} <= set(names)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_what_lies_inside_the_clock_is_the_strategys_own_code(strategy: Strategy) -> None:
    function = inspect.getsource(strategy.build).rstrip()

    assert textwrap.indent(function, " " * 8) in inside_the_clock(strategy)


def test_every_promise_that_a_measurement_can_break_is_explained() -> None:
    source = Path(case.__file__).read_text() + Path(compare.__file__).read_text()

    assert all(f'"{name}"' in source for name in CONTRACT)


@pytest.mark.parametrize(
    ("given", "expected", "cause"),
    [
        ((4, 3), (8, 4, 3), "axis of the instances is missing"),
        ((8, 3, 4), (8, 4, 3), "transposed"),
        ((4, 8), (8, 4), "not the first"),
        ((8, 5), (8, 4), ""),
    ],
)
def test_a_wrong_shape_has_a_likely_cause(given: tuple[int, ...], expected: tuple[int, ...], cause: str) -> None:
    found = diagnose.cause_of_shape(given, expected)

    assert cause in found
    assert bool(found) == bool(cause)


@pytest.mark.skipif(not installed("torch"), reason="torch is not installed")
def test_a_strategy_of_a_framework_is_checked_on_all_small_workloads(tmp_path: Path) -> None:
    found = checkup.prepare(checkup.small_workloads(), ["gradients"], tmp_path)
    strategy = next(s for s in STRATEGIES if s.name == "torch/func-vmap")

    result = checkup.check_strategy(strategy, found, lambda row: None)

    assert result.ok, describe(result)
    assert len(result.rows) == 2 * len(found)
    assert sum(row.status is Status.OK for row in result.rows) >= 2 * len(find_workloads.builtin())
