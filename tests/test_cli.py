"""The command line as a newcomer meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from harness.cli.app import app
from harness.core import store
from harness.core.records import Measurement, Status
from tests.conftest import PLANTED, installed

HONEST = ["--plugin", str(PLANTED / "honest.py"), "--strategy", "numpy/honest"]
POLICY = ["--workload", "policy"]


def pergrad(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("size", ["0", "-4", "8,many", "", "1.5", "4,,8"])
def test_a_batch_size_that_is_none_is_refused_with_what_is_allowed(size: str) -> None:
    result = pergrad("run", "--batch-size", size)

    assert result.exit_code == 2
    assert "whole number from 1 up" in result.output


def test_an_unknown_strategy_suggests_the_nearest_name() -> None:
    result = pergrad("run", "--strategy", "torch/func-vamp")

    assert result.exit_code == 2
    assert "did you mean 'torch/func-vmap'" in result.output


def test_an_unknown_device_is_refused_with_what_is_allowed() -> None:
    result = pergrad("run", "--device", "tpu")

    assert result.exit_code == 2
    assert "cpu, gpu, all" in result.output


def test_an_unwritable_results_folder_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file is in the way")

    result = pergrad("run", *HONEST, "--results", str(tmp_path / "results"))

    assert result.exit_code == 2
    assert "cannot write results" in result.output
    assert "Looking at" not in result.output


@pytest.mark.parametrize("what", ["strategies", "workloads"])
def test_lists_are_also_json_objects(what: str) -> None:
    entries = json.loads(pergrad("list", what, "--json").stdout)

    assert entries
    assert all({"name", "framework", "summary"} <= set(entry) for entry in entries)


def test_help_lists_the_commands() -> None:
    output = pergrad("--help").output

    assert all(command in output for command in ("run", "report", "list"))


def test_a_report_without_a_run_says_how_to_make_one(tmp_path: Path) -> None:
    result = pergrad("report", "--results", str(tmp_path))

    assert result.exit_code == 2
    assert "pergrad run --quick" in result.output


def test_a_run_measures_stores_and_reports(tmp_path: Path) -> None:
    results, reports = tmp_path / "results", tmp_path / "reports"

    result = pergrad(
        *("run", *HONEST, *POLICY, "--batch-size", "1,3", "--passes", "2", "--name", "try", "--target", "0.01"),
        *("--results", str(results), "--reports", str(reports)),
    )

    assert result.exit_code == 0, result.output
    assert str(reports / "try" / "index.html") in result.output
    run = store.load(results / "try")
    assert run.info["state"] == "complete"
    assert [(row.pass_number, row.batch_size) for row in run.rows if row.strategy == "numpy/honest"] == [
        (1, 1),
        (1, 3),
        (2, 1),
        (2, 3),
    ]
    assert (results / "try" / "pytest-benchmark.json").exists()

    again = pergrad("report", "try", "--results", str(results), "--reports", str(tmp_path / "again"))
    assert again.exit_code == 0
    assert (tmp_path / "again" / "try" / "index.html").exists()


def test_a_strategy_that_disagrees_is_named_and_makes_the_exit_status_1(tmp_path: Path) -> None:
    result = pergrad(
        *("run", "--plugin", str(PLANTED / "times_two.py"), "--strategy", "numpy/times-two", *POLICY),
        *("--batch-size", "2", "--passes", "1", "--target", "0.01"),
        *("--results", str(tmp_path / "results"), "--reports", str(tmp_path / "reports")),
    )

    assert result.exit_code == 1
    assert "disagrees: numpy/times-two" in result.output
    assert "twice what it should be" in result.output


def test_a_baseline_that_is_asked_for_is_measured_twice_and_speed_ups_are_relative_to_it(tmp_path: Path) -> None:
    folders = ("--results", str(tmp_path / "results"), "--reports", str(tmp_path / "reports"))
    result = pergrad(
        *("run", *HONEST, *POLICY, "--baseline", "numpy/outer-products", "--batch-size", "2", "--passes", "1"),
        *("--target", "0.01s", "--name", "chosen", *folders),
    )

    assert result.exit_code == 0, result.output
    run = store.load(tmp_path / "results" / "chosen")
    assert run.info["baseline"] == "numpy/outer-products"
    assert {row.strategy for row in run.rows} == {"numpy/honest", "numpy/outer-products"}
    assert "numpy/outer-products" in (tmp_path / "reports" / "chosen" / "summary.md").read_text()


def test_resume_refuses_options_that_would_change_the_plan(tmp_path: Path) -> None:
    result = pergrad("run", "--resume", "try", "--batch-size", "512", "--quick", "--results", str(tmp_path))

    assert result.exit_code == 2
    assert "--quick, --batch-size cannot be given with it" in result.output


def test_a_gpu_that_nobody_sees_is_refused_with_what_the_frameworks_say(tmp_path: Path) -> None:
    result = pergrad(
        *("run", *HONEST, *POLICY, "--device", "gpu", "--batch-size", "1", "--passes", "1", "--name", "no-gpu"),
        *("--results", str(tmp_path / "results"), "--reports", str(tmp_path / "reports")),
    )

    assert result.exit_code == 2
    assert "no framework sees a GPU here" in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "results" / "no-gpu").exists()


def test_where_all_devices_are_asked_for_an_absent_one_is_one_line_and_a_status(tmp_path: Path) -> None:
    result = pergrad(
        *("run", *HONEST, *POLICY, "--device", "all", "--batch-size", "1", "--passes", "1", "--name", "no-gpu"),
        *("--results", str(tmp_path / "results"), "--reports", str(tmp_path / "reports")),
    )

    assert result.exit_code == 0
    assert "numpy: sees no gpu" in result.output
    (reason,) = {row.reason for row in store.load(tmp_path / "results" / "no-gpu").rows if row.device == "gpu"}
    assert "sees no gpu" in reason


def test_the_console_script_answers_without_loading_a_framework() -> None:
    script = (
        "import sys, typer.testing; from harness.cli.app import app; "
        "assert not typer.testing.CliRunner().invoke(app, ['list', 'strategies']).exit_code; "
        "print([m for m in ('tensorflow', 'jax', 'torch', 'pandas', 'matplotlib') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_a_workload_in_a_file_is_measured_under_its_name(tmp_path: Path) -> None:
    example = Path(__file__).parent.parent / "examples" / "through_ops.py"

    result = pergrad(
        *("run", *HONEST, "--workload", str(example), "--batch-size", "2", "--passes", "1", "--name", "own"),
        *("--target", "0.01", "--results", str(tmp_path / "results"), "--reports", str(tmp_path / "reports")),
    )

    assert result.exit_code == 0, result.output
    (row,) = store.load(tmp_path / "results" / "own").rows
    assert (row.workload, row.status) == ("through-ops", "ok")


def test_what_reads_layers_starts_no_worker_for_a_model_that_is_not_written_through_ops(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        '"""A model in NumPy."""\nframeworks = ("numpy",)\n\n\n'
        "def losses(parameters, batch):\n    return (batch['x'] * parameters['w']) ** 2\n\n\n"
        "def parameters(rng):\n    return {'w': rng.random(1)}\n\n\n"
        "def batch(rng, size):\n    return {'x': rng.random(size)}\n"
    )

    result = pergrad(
        *(
            "run",
            *HONEST,
            "--strategy",
            "numpy/outer-products",
            "--workload",
            str(tmp_path / "own.py"),
            "--name",
            "own",
        ),
        *("--batch-size", "2", "--passes", "1", "--target", "0.01"),
        *("--results", str(tmp_path / "results"), "--reports", str(tmp_path / "reports")),
    )

    assert result.exit_code == 0, result.output
    loop, refused = sorted(store.load(tmp_path / "results" / "own").rows, key=lambda row: row.strategy)
    assert (loop.status, refused.status) == ("ok", "unsupported")
    assert "reads the layers of losses written through ops" in refused.reason
    assert refused.case_s is None


def test_a_workload_that_couples_its_instances_is_named_as_such(tmp_path: Path) -> None:
    coupled = Path(__file__).parent / "planted_workloads" / "coupled.py"

    result = pergrad(
        *("run", *HONEST, "--workload", str(coupled), "--batch-size", "1,4", "--passes", "1", "--name", "coupled"),
        *("--target", "0.01", "--results", str(tmp_path / "results"), "--reports", str(tmp_path / "reports")),
    )

    assert result.exit_code == 0, result.output
    rows = store.load(tmp_path / "results" / "coupled").rows
    assert {row.status for row in rows} == {"unsupported"}
    assert all("couples its instances" in row.reason for row in rows)


def test_a_batch_of_too_many_bytes_is_skipped_with_the_numbers(tmp_path: Path) -> None:
    result = pergrad(
        *("run", *HONEST, "--workload", "mlp", "--batch-size", "1,4000", "--passes", "1", "--name", "large"),
        *("--target", "0.01", "--results", str(tmp_path / "results"), "--reports", str(tmp_path / "reports")),
    )

    assert result.exit_code == 0, result.output
    large = next(row for row in store.load(tmp_path / "results" / "large").rows if row.batch_size > 1)
    assert large.status == "skipped"
    assert "GiB" in large.reason


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--limit", "soon", "as in 90s, 5min or 1h"),
        ("--budget", "0s", "as in 90s, 5min or 1h"),
        ("--cpus", "99", "available here are"),
        ("--allocator", "jemalloc", "default, reuse, all"),
        ("--dtype", "float8", "float32, float64, bfloat16"),
        ("--workload", "polcy", "did you mean 'policy'"),
    ],
)
def test_a_bad_option_is_refused_with_what_is_allowed(option: str, value: str, said: str) -> None:
    result = pergrad("run", option, value)

    assert result.exit_code == 2
    assert said in result.output


def test_show_prints_a_strategy_to_be_copied() -> None:
    output = pergrad("show", "jax/vmap").output

    assert "jit(vmap(grad))" in output
    assert "jax.jit(jax.vmap(jax.grad(problem.loss)" in output


def test_show_suggests_the_nearest_name() -> None:
    result = pergrad("show", "jax/vmop")

    assert result.exit_code == 2
    assert "did you mean 'jax/vmap'" in result.output


def test_compare_judges_two_runs_and_can_fail_on_slower(tmp_path: Path) -> None:
    results, reports = tmp_path / "results", tmp_path / "reports"
    for name, seconds in (("before", 0.010), ("after", 0.015)):
        store.create(results / name, {"machine": {"processor": "P"}, "baseline": "numpy/honest"})
        for number in (1, 2, 3):
            samples = tuple(int(1e9 * seconds * (1 + 0.001 * i)) for i in range(40))
            store.append(results / name, made_row("numpy/honest", number, samples))
    folders = ("--results", str(results), "--reports", str(reports))

    same = pergrad("compare", "before", "before", "--fail-on-slower", "10%", *folders)
    slower = pergrad("compare", "before", "after", "--fail-on-slower", "10%", *folders)

    assert same.exit_code == 0, same.output
    assert slower.exit_code == 1
    assert "SLOWER" in slower.output
    assert json.loads(pergrad("compare", "before", "after", "--json", *folders).stdout)["counts"] == {"SLOWER": 1}


def made_row(strategy: str, number: int, samples: tuple[int, ...]) -> Measurement:
    return Measurement(
        workload="policy",
        strategy=strategy,
        framework="numpy",
        quantity="gradients",
        device="cpu",
        dtype="float32",
        batch_size=1,
        pass_number=number,
        status=Status.OK,
        samples_ns=samples,
        median_s=sorted(samples)[len(samples) // 2] * 1e-9,
    )


@pytest.mark.skipif(installed("torch"), reason="torch is installed")
def test_a_workload_of_a_framework_that_is_not_installed_is_refused_in_a_sentence(tmp_path: Path) -> None:
    result = pergrad("run", "--workload", "examples/torch_module.py", "--results", str(tmp_path / "results"))

    assert result.exit_code == 2
    assert "No module named 'torch'; choose others with --workload" in result.output
