"""pergrad from Python: measure and load runs as pandas frames, for a notebook that draws its own figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def run(
    workload: str | Sequence[str] = (),
    strategies: Sequence[str] = (),
    batch_sizes: Sequence[int] | None = None,
    *,
    passes: int | None = None,
    target_s: float | None = None,
    dtype: str = "float32",
    baseline: str = "",
    device: str = "cpu",
    plugins: Sequence[str | Path] = (),
    name: str | None = None,
    results: str | Path = "results",
    reports: str | Path = "reports",
) -> pd.DataFrame:
    """Measure, as `pergrad run` does, and return what `load` returns; the report is written too.

    What is not given is as `pergrad run` has it.

    Args:
        workload: names or files; by default policy, cnn, mlp and those of the current folder.
        strategies: names, such as `jax/vmap`; by default the leading ones.
        passes: how often everything is measured.
        target_s: seconds of timed calls to aim for per case and pass.
        baseline: the strategy that speed-ups are relative to; by default the plain loop of the first framework.
        device: `cpu`, `gpu`, `all`, or one GPU as `gpu:1` or `gpu:GPU-<uuid>`.
        plugins: strategy files outside `strategies/`.
        name: the run's folder below `results`; by default date and time.

    Raises:
        PlanError: if a device is asked for that no framework sees.
        PluginError: if a name is unknown; the message suggests the nearest.
        StoreError: if the run's folder exists or cannot be written.
        Busy: if another run is measuring on this machine.
    """
    from harness import session
    from harness.core.find_strategies import discover
    from harness.runner import prepare
    from harness.runner.plan import frameworks_of, plan_for, requested_workloads

    catalogue = discover(Path(plugin) for plugin in plugins)
    workloads = requested_workloads([workload] if isinstance(workload, str) else workload)
    names = [catalogue.find(given).name for given in strategies]
    names = names or catalogue.measurable(full=False, frameworks=frameworks_of(workloads))
    wanted = plan_for(workloads, names).given(
        batch_sizes=None if batch_sizes is None else tuple(sorted(set(batch_sizes))),
        passes=passes,
        target_s=target_s,
        dtype=dtype,
        baseline=baseline,
    )
    folder = prepare.new_folder(Path(results), name)
    session.measure_and_report(
        prepare.start(wanted, catalogue, device, folder, may_add_baseline=not strategies), Path(reports)
    )
    return load(folder)


def load(run: str | Path) -> pd.DataFrame:
    """A run as a frame with one row per case and pass.

    The columns are the fields of `harness.core.records.Measurement`,
    where `pass_number` is called `pass`.

    Args:
        run: the run's folder, such as `results/sample`.

    Raises:
        StoreError: if there is no run in that folder.
    """
    import pandas as pd

    from harness.core import store

    return pd.DataFrame([row.as_json() for row in store.load(Path(run)).rows])
