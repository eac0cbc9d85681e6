"""Compute and store the reference: per-instance gradients in float64, by a framework that is not compared.

HIPS autograd on NumPy differentiates one instance at a time (`harness.reference.gradients`). It is evaluated at the
inputs that the strategies see, that is after they were rounded to the dtype under test. Beside each true row stands its
rounding error (`harness.reference.tolerance`), which separates rounding from a wrong result. What cannot be computed
through `ops` is computed by its own framework instead, and the reference says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.core import find_workloads, problem
from harness.core.domain import QUANTITIES
from harness.core.plugins import PluginError
from harness.core.problem import CLIP_NORM
from harness.core.records import Status
from harness.core.user_code import Failing, explained
from harness.core.workload import Arrays, Workload, cast, split
from harness.frameworks import child_process
from harness.reference import files, gradients, independence
from harness.reference.gradients import ReferenceGradients
from harness.reference.result import Reference, norms_of
from harness.reference.tolerance import RoundingErrors

BATCHES = 3
"""How many different batches the inputs rotate through."""

MOST_VALUES = 1 << 20
"""Rows are checked one by one up to this many gradient values in a batch, and up to `MOST_ROWS`; of a larger
batch, a sample is."""

FEWEST_ROWS = 4

MOST_ROWS = 64

LIMIT_S = 600.0
"""What the reference of one batch size may take in a process of its own."""

FEW_ROWS = 16
"""Of the second and third batch, whose results come from timed calls, fewer rows are checked."""


class NotFinite(PluginError):
    """A workload whose true gradient is NaN or infinite at its own parameters and inputs."""


def write(
    path: Path,
    source: str,
    size: int,
    seed: int,
    dtype: str,
    quantities: Sequence[str] = tuple(QUANTITIES),
    thorough: bool = True,
) -> None:
    """Compute the reference for the batches of one size, as `write_sizes` does for several.

    Raises:
        PluginError: if there is no reference: why, in a sentence.
        ChildProcessFailed: if the other process fails.
    """
    for why_not in write_sizes({size: path}, source, seed, dtype, quantities, thorough).values():
        raise why_not


def write_sizes(
    paths: Mapping[int, Path],
    source: str,
    seed: int,
    dtype: str,
    quantities: Sequence[str] = tuple(QUANTITIES),
    thorough: bool = True,
) -> dict[int, PluginError]:
    """Compute the reference for the batches that strategies are measured on, into files for `load`.

    A workload for some frameworks only is computed in a process of its own, because its framework must not be
    imported into this one; one process serves all sizes.

    Args:
        paths: number of instances in a batch -> the file to write.
        source: what `workloads.find` takes.
        seed: what parameters and batches are drawn from.
        dtype: the dtype under test.
        quantities: what is asked about; clipped sums need the norm of every instance, which takes long.
        thorough: whether the first batch has more rows.

    Returns:
        Why there is no reference, by batch size: `Coupled` for all, any other reason for its own size only.

    Raises:
        PluginError: if the workload is not there.
        ChildProcessFailed: if the other process fails.
    """
    workload = find_workloads.find(source)
    files = [(size, str(path)) for size, path in paths.items()]
    if workload.through_ops:
        refusals = write_here(files, source, seed, dtype, list(quantities), thorough)
    elif files:
        function = "harness.reference.build:write_here"
        arguments = (files, source, seed, dtype, list(quantities), thorough)
        framework, limit_s = gradients.framework(workload), LIMIT_S * len(files)
        refusals = child_process.call(function, *arguments, framework=framework, dtype="float64", limit_s=limit_s)
    else:
        refusals = []
    found = {size: child_process.refusal(*described) for size, *described in refusals}
    coupled = next((error for error in found.values() if isinstance(error, independence.Coupled)), None)
    return dict.fromkeys(paths, coupled) if coupled else found


def write_or_say_why_not(
    paths: Mapping[int, Path], source: str, seed: int, dtype: str, quantities: Sequence[str]
) -> dict[int, tuple[Status, str]]:
    """Compute what `write_sizes` does; batch size -> status and reason of its cases, where there is no reference."""
    try:
        refusals: Mapping[int, Exception] = write_sizes(paths, source, seed, dtype, quantities)
    except (PluginError, child_process.ChildProcessFailed) as error:
        refusals = dict.fromkeys(paths, error)
    return {
        size: (Status.ERROR if isinstance(error, Failing) else Status.UNSUPPORTED, str(error))
        for size, error in refusals.items()
    }


def write_here(
    files: Sequence[tuple[int, str]], source: str, seed: int, dtype: str, quantities: Sequence[str], thorough: bool
) -> list[list[Any]]:
    """What `write_sizes` does, in this process; the refusals as plain values: batch size, module, class, message."""
    workload = find_workloads.find(source)
    refusals = []
    for size, path in files:
        try:
            _write(Path(path), workload, size, seed, dtype, quantities, thorough)
        except PluginError as error:
            refusals.append([size, *child_process.described(error)])
    return refusals


def _write(
    path: Path, workload: Workload, size: int, seed: int, dtype: str, quantities: Sequence[str], thorough: bool
) -> None:
    parameters = cast(workload.initial_parameters(seed), dtype)
    batches = [cast(batch, dtype) for batch in workload.batches(seed, size, BATCHES)]
    references = [
        compute(
            workload, parameters, batch, quantities=quantities, thorough=thorough and number == 0, first=number == 0
        )
        for number, batch in enumerate(batches)
    ]
    _refuse_constant(references, workload)
    files.save(path, references, files.Inputs(parameters, tuple(batches)))


def compute(
    workload: Workload,
    parameters: Arrays,
    batch: Arrays,
    seed: int = 0,
    quantities: Sequence[str] = tuple(QUANTITIES),
    thorough: bool = True,
    first: bool = True,
) -> Reference:
    """The reference for one batch. `parameters` and `batch` are given in the dtype under test.

    If it is not `thorough`, it has fewer rows, and a weighted sum only where that is the quantity. In the `first`
    batch coupled instances are looked for.

    Raises:
        Coupled: if an instance's loss changes with the others in its batch.
        Failing: if the workload's own code raises an exception.
        NotFinite: if a true gradient is not finite.
    """
    size = len(next(iter(batch.values())))
    floats, _ = split(parameters)
    values = sum(value.size for value in floats.values())
    dtype = next(iter(floats.values())).dtype.name
    count = min(size, MOST_ROWS if thorough else FEW_ROWS, max(FEWEST_ROWS, MOST_VALUES // values))
    rng = np.random.default_rng([seed, size])
    instances = np.sort(rng.choice(size, count, replace=False))
    weights = cast({"weights": problem.weights(size)}, dtype)["weights"].astype(np.float64)

    inputs = files.digest({**parameters, **workload.state()}, batch)
    workload = _with_rounded_state(workload, dtype)
    exact = ReferenceGradients(workload, parameters, batch, "float64")
    with explained(workload.name, workload.path, "losses()"):
        independence.refuse_unfit(exact, coupled=first)
        rows = exact.rows(instances)
    _refuse_nonfinite(rows, instances, workload)
    rounding = RoundingErrors(workload, parameters, batch, rng)
    errors, norms_errors = rounding.of_rows(rows, instances)
    _refuse_overflow(errors, rows, instances, workload, dtype)

    def summed(factors: np.ndarray[Any, Any]) -> tuple[Arrays, Arrays]:
        """The sum of factors x gradients over the batch, and its rounding error."""
        true = exact.weighted(factors)
        return true, rounding.of_sum(true, factors)

    weighted, weighted_error = summed(weights) if thorough or "weighted_sum" in quantities else ({}, {})
    clipped, clipped_error = summed(_clipping(exact, rows, size)) if "clipped_sum" in quantities else ({}, {})
    return Reference(
        instances=instances,
        rows=rows,
        row_errors=errors,
        norms_error=norms_errors,
        weights=weights,
        weighted=weighted,
        weighted_error=weighted_error,
        clipped=clipped,
        clipped_error=clipped_error,
        inputs=inputs,
        computed_with=gradients.description(workload),
    )


def _with_rounded_state(workload: Workload, dtype: str) -> Workload:
    """The workload as strategies see it: its state is in the dtype under test, as parameters and inputs are."""
    return replace(workload, state=lambda: cast(workload.state(), dtype))


def _refuse_constant(references: Sequence[Reference], workload: Workload) -> None:
    """A loss that no parameter takes part in has rows of zeros, or none: whoever returns zeros would be right."""
    if not any(row.any() for reference in references for row in reference.rows.values()):
        names = ", ".join(list(references[0].rows)[:3])
        raise Failing(
            f"workload {workload.name} has gradients of zero, for every parameter ({names}) and instance: its losses "
            "do not depend on them. Is a result detached, rounded, or computed outside the framework?"
        )


def _refuse_nonfinite(rows: Arrays, instances: np.ndarray[Any, Any], workload: Workload) -> None:
    for name, value in rows.items():
        bad = ~np.isfinite(value.reshape(len(value), -1)).all(axis=1)
        if bad.any():
            raise NotFinite(
                f"workload {workload.name} has no finite gradient: that of {name} is NaN or infinite for instance "
                f"{instances[bad.argmax()]}. A branch that where() does not choose still takes part: choose a harmless "
                "input for it by a second where()"
            )


def _refuse_overflow(
    errors: Arrays, rows: Arrays, instances: np.ndarray[Any, Any], workload: Workload, dtype: str
) -> None:
    for name, error in errors.items():
        if not np.isfinite(error).all():
            row = int(np.isfinite(error).argmin())
            raise NotFinite(
                f"workload {workload.name} has no finite gradient in {dtype}: that of {name} overflows for instance "
                f"{instances[row]}, though its largest entry is {np.abs(rows[name][row]).max():.2g} in float64. "
                "Scale its inputs or parameters, or measure it in float64"
            )


def _clipping(exact: ReferenceGradients, rows: Arrays, size: int) -> np.ndarray[Any, Any]:
    """What each instance's gradient is multiplied with to have a norm of at most `CLIP_NORM`, (B,)."""
    norms = norms_of(rows)
    if len(norms) < size:  # one row after the other, because all of them may not fit into memory
        norms = np.concatenate([norms_of(exact.rows([i])) for i in range(size)])
    factors: np.ndarray[Any, Any] = CLIP_NORM / np.maximum(norms, CLIP_NORM)
    return factors
