"""Which cases are measured, in which order, and which are predicted to be hopeless."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis import predict
from harness.analysis.predict import extrapolate
from harness.core import find_strategies
from harness.core.plugins import PluginError
from harness.core.strategy import Strategy
from harness.core.task import Task
from harness.runner import plan, prepare
from harness.runner.plan import Group, Plan

CHOSEN = find_strategies.discover().strategies


def tasks(wanted: Plan, chosen: Sequence[Strategy], references: Mapping[str, Mapping[int, str]]) -> list[Task]:
    return [task for group in groups(wanted, chosen, references) for heat in group.heats for task in heat]


def groups(
    wanted: Plan, chosen: Sequence[Strategy], references: Mapping[str, Mapping[int, str]], most_workers: int = 1000
) -> list[Group]:
    return plan.groups(wanted, chosen, references, most_workers)


WANTED = Plan(("policy",), tuple(s.name for s in CHOSEN), ("cpu",), batch_sizes=(16, 1, 4), baseline="tf1/session-loop")
TRUTHS = {"policy": dict.fromkeys((1, 4, 16), "")}


def test_every_heat_of_every_pass_holds_every_strategy_once_at_one_batch_size() -> None:
    found = groups(WANTED, CHOSEN, TRUTHS)

    assert [group.pass_number for group in found] == [1, 2]
    for group in found:
        assert [{task.batch_sizes for task in heat} for heat in group.heats] == [{(1,)}, {(4,)}, {(16,)}]
        for heat in group.heats:
            assert sorted(task.strategy for task in heat) == sorted(s.name for s in CHOSEN)


@given(st.integers(2, 30))
def test_where_not_all_workers_fit_every_group_has_the_baseline(most_workers: int) -> None:
    found = groups(replace(WANTED, passes=1), CHOSEN, TRUTHS, most_workers)
    heats = [[task.strategy for task in group.heats[0]] for group in found]

    assert all(len(heat) <= most_workers and heat[0] == WANTED.baseline for heat in heats)
    others = [name for heat in heats for name in heat[1:]]
    assert sorted(others) == sorted(s.name for s in CHOSEN if s.name != WANTED.baseline)


def test_a_plan_of_the_baseline_alone_has_a_group() -> None:
    alone = replace(WANTED, passes=1)
    baseline = [strategy for strategy in CHOSEN if strategy.name == WANTED.baseline]

    (group,) = groups(alone, baseline, TRUTHS)

    assert [task.strategy for task in group.heats[0]] == [WANTED.baseline]


def test_passes_differ_in_order_and_the_seed_repeats_them() -> None:
    found = tasks(WANTED, CHOSEN, TRUTHS)
    orders = [[task.strategy for task in found if task.pass_number == number] for number in (1, 2)]

    assert orders[0] != orders[1]
    assert tasks(WANTED, CHOSEN, TRUTHS) == found


def of_names(*names: str) -> Plan:
    return replace(WANTED, strategies=names, baseline="")


CATALOGUE = find_strategies.discover()


def test_the_loop_of_the_first_framework_that_is_there_is_the_baseline() -> None:
    measured = of_names("jax/vmap", "jax/grad-loop", "tf1/session-loop")

    assert plan.with_baseline(measured, CATALOGUE, {"jax", "tf1"}, False).baseline == "tf1/session-loop"
    assert plan.with_baseline(measured, CATALOGUE, {"jax"}, False).baseline == "jax/grad-loop"


def test_a_loop_is_added_only_where_that_is_allowed() -> None:
    added = plan.with_baseline(of_names("jax/vmap"), CATALOGUE, {"jax"}, True)
    alone = plan.with_baseline(of_names("jax/vmap"), CATALOGUE, {"jax"}, False)

    assert (added.baseline, added.strategies) == ("jax/grad-loop", ("jax/grad-loop", "jax/vmap"))
    assert (alone.baseline, alone.strategies) == ("", ("jax/vmap",))


def test_a_baseline_that_is_asked_for_is_measured_too() -> None:
    wanted = plan.with_baseline(replace(of_names("jax/vmap"), baseline="torch/func-vmap"), CATALOGUE, {"jax"}, False)

    assert wanted.strategies == ("torch/func-vmap", "jax/vmap")


def test_an_unknown_baseline_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(PluginError, match="did you mean 'jax/grad-loop'"):
        plan.with_baseline(replace(WANTED, baseline="jax/gradloop"), CATALOGUE, set(), False)


def test_the_checks_are_made_once_per_case() -> None:
    assert all(task.checks == (task.pass_number == 1) for task in tasks(WANTED, CHOSEN, TRUTHS))


def test_with_a_budget_the_baseline_and_one_of_each_framework_come_first() -> None:
    found = tasks(replace(WANTED, budget_s=300), CHOSEN, TRUTHS)

    assert found[0].strategy == WANTED.baseline
    frameworks = {s.framework for s in CHOSEN}
    first = groups(replace(WANTED, budget_s=300), CHOSEN, TRUTHS)[0].heats[0]
    assert len(first) <= len(frameworks) + 1
    assert {task.framework for task in first} == frameworks


def test_a_task_survives_the_way_to_another_process() -> None:
    task = tasks(replace(WANTED, cpus=(0, 1)), CHOSEN, TRUTHS)[0]

    assert Task.from_json(json.loads(json.dumps(task.as_json()))) == task


def test_the_graph_of_unstack_is_predicted_to_pass_the_limit() -> None:
    # Build seconds on two cores; B=256 really took 224 s.
    history = [(1, 0.15), (4, 0.2), (16, 0.7), (64, 7.0)]

    assert extrapolate(history, 256) > 100


def test_short_times_predict_nothing() -> None:
    assert extrapolate([(1, 0.001), (4, 0.9)], 256) == 0


def test_one_point_predicts_nothing() -> None:
    assert extrapolate([(4, 50.0)], 16) == 0


@given(exponent=st.floats(0, 3), factor=st.floats(1, 100))
def test_a_pure_power_is_continued_exactly(exponent: float, factor: float) -> None:
    history = [(size, factor * size**exponent) for size in (4, 16, 64)]

    assert extrapolate(history, 256) == pytest.approx(factor * 256**exponent, rel=1e-6)


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(1e-3, 1e3)), min_size=2, max_size=5, unique_by=lambda p: p[0]))
def test_a_prediction_is_never_below_the_largest_batch_measured(history: list[tuple[int, float]]) -> None:
    seconds = max(history)[1]

    assert extrapolate(history, 256) in (0, pytest.approx(seconds)) or extrapolate(history, 256) >= seconds


def test_workers_go_through_the_workloads_in_the_order_of_the_plan() -> None:
    wanted = replace(WANTED, workloads=("policy", "mlp"), batch_sizes=(1,), passes=1)
    (group,) = groups(wanted, CHOSEN, dict.fromkeys(wanted.workloads, TRUTHS["policy"]))

    assert [{task.workload for task in heat} for heat in group.heats] == [{"policy"}, {"mlp"}]


def test_a_large_step_to_a_doubtful_size_is_tried_in_between() -> None:
    assert predict.trial_size([(1, 0.5)], 256, limit_s=60) == 4
    assert predict.trial_size([(1, 0.0001)], 256, limit_s=60) is None
    assert predict.trial_size([(64, 1.0)], 256, limit_s=60) is None


def test_two_sizes_of_which_one_was_disturbed_do_not_rule_out_a_third() -> None:
    history = [(1, 0.05), (3, 2.5)]
    assert extrapolate(history, 16) > 60

    assert predict.trial_size(history, 16, limit_s=60) == 6
    assert predict.trial_size([*history, (6, 0.1)], 16, limit_s=60) is None
    assert extrapolate([*history, (6, 0.1)], 16) == 0


def test_a_cost_that_has_just_overtaken_that_of_compiling_is_not_ruled_out() -> None:
    # Seconds of a loop without jit on two cores, whose first call of all compiled; B=128 takes 24 s.
    history = [(1, 2.2), (4, 0.8), (16, 3.05)]
    assert extrapolate(history, 128) > 60

    assert predict.trial_size(history, 128, limit_s=60) == 32
    assert predict.trial_size([*history, (32, 6.0)], 128, limit_s=60) == 64
    assert predict.trial_size([*history, (32, 6.0), (64, 12.0)], 128, limit_s=60) is None
    assert extrapolate([*history, (32, 6.0), (64, 12.0)], 128) == pytest.approx(24, rel=0.1)


def test_a_cost_that_grows_on_is_given_up_before_it_takes_long() -> None:
    history = [(1, 0.5), (4, 0.7), (16, 3.05)]

    assert predict.trial_size(history, 128, limit_s=60) == 32
    assert predict.trial_size([*history, (32, 12.2)], 128, limit_s=60) is None
    assert extrapolate([*history, (32, 12.2)], 128) > 60


def test_a_size_that_may_just_reach_the_limit_is_tried_at_half() -> None:
    # Seconds of unstack at B=64 on two cores; B=256 was stopped after 60 s.
    assert predict.trial_size([(16, 0.45), (64, 2.65)], 256, limit_s=60) == 128


def test_where_no_process_can_be_bound_to_cores_threads_are_limited_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)  # as on macOS
    wanted = plan.plan_for({"policy": "policy"}, ["numpy/autograd-loop"])

    assert plan.bind_to_cores(replace(wanted, threads=1)).cpus is None
    with pytest.raises(plan.PlanError, match="binds no process to cores"):
        plan.bind_to_cores(replace(wanted, cpus=(0,)))


def test_two_runs_without_a_name_in_one_second_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OneSecond(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime(2026, 12, 4, 11, 2, 1)

    monkeypatch.setattr(prepare, "datetime", OneSecond)
    folders = []
    for _ in range(3):
        folders.append(prepare.new_folder(tmp_path, None))
        folders[-1].mkdir()
    assert [folder.name for folder in folders] == ["2026-12-04-110201", "2026-12-04-110201-2", "2026-12-04-110201-3"]
    assert sorted(folders) == folders
    assert prepare.new_folder(tmp_path, folders[0].name) == folders[0]  # a name that was given is refused, not changed
