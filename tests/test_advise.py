"""`pergrad advise`: the contest with made-up times, and the whole command with a cheap framework."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.advise import answer, prior, race
from harness.advise.prior import Model, PriorResult
from harness.advise.race import Question, Race
from harness.cli.app import app
from harness.core.find_strategies import Catalogue, discover
from harness.core.records import Measurement, Status
from harness.core.strategy import Strategy
from harness.core.task import Job
from tests.stub_machine import Machine

QUESTION = Question(
    name="policy",
    source="policy",
    frameworks=("numpy",),
    model=Model(45, 300),
    batch_size=8,
    quantity="gradients",
    dtype="float32",
    reference="reference.npz",
)


def strategies(*names: str) -> list[tuple[Strategy, float]]:
    """Made-up strategies of numpy, all equally promising."""
    known = discover().find("numpy/autograd-loop")
    return [(replace(known, name=f"numpy/{name}"), 1.0) for name in names]


def hold(machine: Machine, monkeypatch: pytest.MonkeyPatch, names: list[str], within_s: float = 60) -> Race:
    monkeypatch.setattr(race.workers, "measure", machine.measure)
    return race.race(QUESTION, strategies(*names), time.monotonic() + within_s, lambda line: None)


def test_the_fastest_wins_and_the_hopeless_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"fast": 100, "middle": 150, "slow": 1000})

    state = hold(machine, monkeypatch, ["slow", "fast", "middle"])

    assert [name for name, _ in state.ranking()] == ["numpy/fast", "numpy/middle", "numpy/slow"]
    assert "numpy/slow" not in state.rounds
    assert state.survivors() == ["numpy/fast"]


def test_the_first_look_shares_a_process_and_the_rounds_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"fast": 100, "middle": 110, "slow": 1000})

    hold(machine, monkeypatch, ["slow", "fast", "middle"])

    assert machine.jobs[0] == ["numpy/slow", "numpy/fast", "numpy/middle"]
    assert all(len(job) == 1 for job in machine.jobs[1:])


def test_two_that_cannot_be_told_apart_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"one": 100, "other": 101}, spread=0.05)

    state = hold(machine, monkeypatch, ["one", "other"], within_s=5)
    said = answer.as_text(answer.advice(state, [], strategies("one", "other")))

    assert len(state.survivors()) == 2
    assert "within the noise" in said


def test_a_strategy_that_disagrees_is_never_ranked_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"right": 100, "wrong": -1})
    found = strategies("right", "wrong")

    state = hold(machine, monkeypatch, ["right", "wrong"])

    assert [name for name, _ in state.ranking()] == ["numpy/right"]
    assert race.left_out(state, found) == {"numpy/wrong": "disagrees: wrong on purpose"}


def test_no_measurement_is_begun_that_would_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"one": 100, "other": 101})

    state = hold(machine, monkeypatch, ["one", "other"], within_s=0.1)

    assert machine.jobs == []
    assert state.ranking() == []


def test_the_unpromising_are_not_measured_while_others_give_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"good": 100, "better": 90, "known-to-be-slow": 1})
    found = strategies("good", "better", "known-to-be-slow")
    found[2] = (found[2][0], 50.0)
    monkeypatch.setattr(race.workers, "measure", machine.measure)

    state = race.race(QUESTION, found, time.monotonic() + 60, lambda line: None)

    assert "numpy/known-to-be-slow" not in state.first
    assert race.not_tried(state, found) == {"numpy/known-to-be-slow": 50.0}


class BusyMachine(Machine):
    """Nothing is ready within the limit of a first look."""

    def measure(self, job: Job) -> Iterator[Measurement]:
        for task, row in zip(job, super().measure(job), strict=True):
            stopped = task.row(task.batch_sizes[0], Status.TIMEOUT, "stopped after 10 s")
            yield stopped if task.limit_s <= race.FIRST_LIMIT_S else row


def test_where_nothing_is_measured_at_first_all_the_time_is_given_to_the_most_promising(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = BusyMachine({"good": 100, "better": 90})

    state = hold(machine, monkeypatch, ["good", "better"])

    assert [name for name, _ in state.ranking()] == ["numpy/good"]
    assert ["numpy/better"] not in machine.jobs


def test_where_nothing_can_be_measured_the_answer_is_what_earlier_runs_say_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = strategies("good", "better")

    state = hold(Machine({"good": 100, "better": 90}), monkeypatch, ["good", "better"], within_s=0.1)
    advice = answer.advice(state, [strategy for strategy, _ in found], found)

    assert advice.expected == "numpy/good"
    assert "nothing could be measured in time. Try numpy/good: earlier runs" in answer.as_text(advice)
    assert "Copy this (numpy/good):" in answer.as_text(advice)


def test_what_cannot_run_the_model_is_never_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    found = strategies("wrong")

    state = hold(Machine({"wrong": -1}), monkeypatch, ["wrong"])
    advice = answer.advice(state, [strategy for strategy, _ in found], found)

    assert advice.expected == ""
    assert "there is no answer" in answer.as_text(advice)


def test_a_loop_over_a_large_batch_is_tried_after_all_others() -> None:
    known = discover().find("numpy/autograd-loop")
    loop, other = replace(known, name="numpy/loop", loop=True), replace(known, name="numpy/other", loop=False)
    memories = [
        PriorResult(name, "gradients", 45, 300, 8, ratio) for name, ratio in (("numpy/loop", 1.0), ("numpy/other", 9.0))
    ]

    def order(batch_size: int) -> list[str]:
        question = replace(QUESTION, batch_size=batch_size)
        return [strategy.name for strategy, _ in race.candidates(Catalogue((loop, other)), question, memories)]

    assert order(64) == ["numpy/other", "numpy/loop"]
    assert order(1) == ["numpy/loop", "numpy/other"]


def test_what_reads_layers_is_no_candidate_for_a_model_that_is_not_written_through_ops() -> None:
    def names(through_ops: bool) -> set[str]:
        return {one.name for one, _ in race.candidates(discover(), replace(QUESTION, through_ops=through_ops), [])}

    assert names(through_ops=True) - names(through_ops=False) == {"numpy/outer-products"}


def test_a_model_is_expected_to_behave_as_those_that_resemble_it() -> None:
    small, large = Model(50, 300), Model(1_000_000, 6_000_000)
    prior_results = [
        PriorResult("jax/vmap", "gradients", small.parameters, small.flops, 16, 1.0),
        PriorResult("jax/vmap", "gradients", large.parameters, large.flops, 16, 9.0),
    ]

    like_small = prior.expected_ratio(prior_results, "jax/vmap", Model(60, 400), 16)
    like_large = prior.expected_ratio(prior_results, "jax/vmap", Model(900_000, None), 32)

    assert like_small is not None
    assert like_large is not None
    assert like_small < 1.1
    assert like_large > 8


def test_a_strategy_of_ones_own_is_unknown_and_comes_first() -> None:
    prior_results = [PriorResult("numpy/autograd-loop", "gradients", 45, 300, 8, 30.0)]
    own, known = (strategy for strategy, _ in strategies("my-idea", "autograd-loop"))
    own = replace(own, path=Path("strategies/numpy/my_idea.py"))

    found = race.candidates(Catalogue((known, own)), QUESTION, prior_results)

    assert [strategy.name for strategy, _ in found] == ["numpy/my-idea", "numpy/autograd-loop"]
    assert found[0][1] == 1.0


def test_memories_survive_the_way_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prior_results = [PriorResult("jax/vmap", "gradients", 45, 300, size, 1.5) for size in (1, 16)]
    (tmp_path / "experience.json").write_text(json.dumps(prior.grouped(prior_results)))
    monkeypatch.setattr(prior, "FILE", tmp_path / "experience.json")

    assert prior.bundled() == prior_results


def test_what_travels_with_pergrad_knows_every_framework() -> None:
    known = prior.bundled()

    assert {memory.strategy.partition("/")[0] for memory in known} == {"tf1", "tf2", "jax", "torch", "numpy"}
    assert all(memory.ratio >= 1 for memory in known)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A workload for NumPy only, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["new", "workload", "my-model", "--framework", "numpy"]).exit_code == 0
    return "my-model"


def test_the_command_answers_with_ranking_reasons_and_code(model: str) -> None:
    result = CliRunner().invoke(app, ["advise", "--workload", model, "--batch-size", "4", "--within", "30s"])

    assert result.exit_code == 0, result.output
    assert "For gradients of my-model at batch size 4 on the CPU use numpy/autograd-loop" in result.output
    assert "You may not need the rows" in result.output
    assert "def autograd_loop(problem: Problem) -> Step:" in result.output


def test_the_command_answers_in_json_too(model: str) -> None:
    result = CliRunner().invoke(app, ["advise", "--workload", model, "--batch-size", "4", "--within", "30s", "--json"])

    found = json.loads(result.stdout)
    assert found["ranking"][0]["strategy"] == "numpy/autograd-loop"
    assert found["ranking"][0]["seconds"]["low"] <= found["ranking"][0]["seconds"]["value"]
    assert found["quantity"] == "gradients"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--quantity", "hessian"], "gradients, norms, weighted_sum, clipped_sum"),
        (["--within", "soon"], "is not a time"),
        (["--workload", "polcy"], "did you mean 'policy'"),
        (["--dtype", "int8"], "float32"),
    ],
)
def test_what_is_not_understood_is_refused_with_what_is_allowed(options: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["advise", "--workload", "policy", "--batch-size", "4", *options])

    assert result.exit_code == 2
    assert said in result.output
