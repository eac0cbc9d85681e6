"""On what condition a strategy may be used: said wherever it is named, in the report and by `advise`."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from harness.advise import answer as advice
from harness.advise import race
from harness.analysis.formats import OVERWRITTEN
from harness.analysis.panels import Panel
from harness.cli.app import app
from harness.core.find_strategies import discover
from harness.report.data import answer, tables
from tests import test_advise
from tests.made_runs import entry, ok
from tests.stub_machine import Machine
from tests.test_analysis import BASE, around, only_panel

REUSING, KEEPING = "jax/vmap-donated", "jax/vmap"


def panel(reusing_ns: int, keeping_ns: int, **reusing: object) -> Panel:
    described = [entry(BASE), entry(KEEPING), {**entry(REUSING), **reusing}]
    times = {BASE: 90_000, REUSING: reusing_ns, KEEPING: keeping_ns}
    rows = [ok(name, 4, number, around(times[name])) for name in times for number in (1, 2)]
    return only_panel(*rows, strategies=described)


def test_where_it_is_the_fastest_the_answer_names_the_best_that_keeps_its_results() -> None:
    sentence = answer.recommend(panel(10_000, 20_000, reuses_output=True)).sentence

    assert f"use {REUSING}" in sentence
    assert f"valid until the next call; if you keep results, use {KEEPING}: 20 µs per call" in sentence


def test_where_it_is_not_the_fastest_the_answer_says_nothing_of_it() -> None:
    assert "valid until" not in answer.recommend(panel(30_000, 20_000, reuses_output=True)).sentence


def test_its_name_is_marked_in_the_tables_and_no_other() -> None:
    found = panel(10_000, 20_000, reuses_output=True)

    assert [name for name, *_ in tables.matrix(found).rows if OVERWRITTEN in name] == [f"{REUSING} {OVERWRITTEN}"]


def test_a_run_of_before_tells_by_the_code_that_it_holds() -> None:
    described = {"code": "@strategy(framework='jax', reuses_output=True)\ndef vmap_donated(problem): ..."}

    assert panel(10_000, 20_000, **described).shown[REUSING] == f"{REUSING} {OVERWRITTEN}"


def test_advice_goes_on_until_the_best_that_keeps_its_results_is_known_too(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"reusing": 100, "keeping": 200, "slow": 1000})
    found = test_advise.strategies("reusing", "keeping", "slow")
    found[0] = (replace(found[0][0], reuses_output=True), 1.0)
    monkeypatch.setattr(race.workers, "measure", machine.measure)

    state = race.race(test_advise.QUESTION, found, time.monotonic() + 60, lambda line: None)
    said = advice.as_text(advice.advice(state, [strategy for strategy, _ in found], found))

    assert state.contests() == [["numpy/reusing"], ["numpy/keeping"]]
    assert "numpy/keeping" in state.rounds
    assert "if you keep results, use numpy/keeping" in said
    assert f"numpy/reusing {OVERWRITTEN}" in said


def test_the_list_marks_those_that_say_so_themselves() -> None:
    listed = CliRunner().invoke(app, ["list", "strategies"]).stdout.splitlines()
    marked = {line.split()[0] for line in listed if f" {OVERWRITTEN} " in line}

    assert marked == {strategy.name for strategy in discover().strategies if strategy.reuses_output}


def test_variables_that_the_fastest_needs_are_named_in_the_answer() -> None:
    described = [entry(BASE), {**entry(KEEPING), "environment": {"JAX_CPU_ENABLE_ASYNC_DISPATCH": "false"}}]
    times = {BASE: 90_000, KEEPING: 20_000}
    rows = [ok(name, 4, number, around(times[name])) for name in times for number in (1, 2)]

    sentence = answer.recommend(only_panel(*rows, strategies=described)).sentence

    assert "It needs JAX_CPU_ENABLE_ASYNC_DISPATCH=false in the environment." in sentence


def test_advice_names_the_variables_too(monkeypatch: pytest.MonkeyPatch) -> None:
    found = test_advise.strategies("fast", "slow")
    found[0] = (replace(found[0][0], environment=(("OMP_NUM_THREADS", "1"),)), 1.0)
    monkeypatch.setattr(race.workers, "measure", Machine({"fast": 100, "slow": 1000}).measure)

    state = race.race(test_advise.QUESTION, found, time.monotonic() + 60, lambda line: None)
    said = advice.as_text(advice.advice(state, [strategy for strategy, _ in found], found))

    assert "It needs OMP_NUM_THREADS=1 in the environment." in said
