"""How one case is measured, inside a worker: build, first call, warm-up, timed calls, fetch, checks."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from harness.core.domain import DTYPES
from harness.core.problem import Batch, Gradients, Problem, Step
from harness.core.records import Mark, MarkKind, Measurement, Status
from harness.core.workload import Arrays
from harness.frameworks import Device, instrumentation
from harness.frameworks.base import first_array, misplaced
from harness.measure import result_checks, timing_checks
from harness.measure.memory import Memory
from harness.measure.subject import Subject
from harness.measure.timer import FEWEST_CALLS, WARMUP_SHARE, NextTurn, Timing, Warmup, take_turns, warm_up
from harness.reference import compare, files
from harness.reference.compare import Agreement
from harness.reference.result import Reference
from harness.system import gpu
from harness.system.info import available_bytes

LEAK_BYTES = 1 << 20
"""Memory that grows by more than this and a fiftieth of the output with every call, in most turns, is called a leak."""

TRIAL_CALLS = 4
"""Calls of a trial after the first one; the fastest counts. Of two, both were disturbed often enough to skip a case."""


def measure(subject: Subject, batch_size: int, next_turn: NextTurn) -> Measurement:
    """Measure one case from the build to the verdict; exceptions of the strategy pass through.

    `next_turn` is asked for the first time when the strategy has been built, has given right rows, and is warm.

    Raises:
        MemoryError: before the build, if the rows alone do not fit into the free memory.
    """
    task, adapter = subject.task, subject.adapter
    refuse_what_cannot_fit(subject, batch_size)
    references = files.load(Path(task.references[batch_size]))
    drawn = subject.drawn(batch_size, len(references))
    if not subject.inputs_travel:  # they were drawn here, from the same seed
        files.refuse_other_inputs(references[0], subject.workload, subject.parameters(), drawn[0])
    batches = [subject.place(batch) for batch in drawn]
    problem = subject.bind(batch_size)
    before = result_checks.digests(adapter, problem, batches) if task.checks else {}
    memory = Memory(adapter, subject.device)
    with adapter.scope(problem):
        watched = adapter.placements() if subject.device.kind != "cpu" else nullcontext(Counter[tuple[str, str]]())
        with instrumentation.slow_fallbacks() as fallbacks, watched as placed:
            step, output, build_s, first_call_s = build(subject, problem, batches[0])
        columns: dict[str, Any] = {"build_s": build_s, "first_call_s": first_call_s, "facts": problem.facts}
        if broken := result_checks.contract(adapter, output):
            return task.row(batch_size, Status.DISAGREES, broken, broken="contract", **columns)
        elsewhere = beside_the_device(placed, subject.device)
        if broken := misplaced(adapter, output, subject.device, subject.strategy.every_device) or elsewhere.all:
            return task.row(batch_size, Status.DISAGREES, broken, broken="device", **columns)
        started = time.perf_counter()
        fetched = subject.fetch(output)
        fetch_s = time.perf_counter() - started
        verdict = compare.check(fetched, references[0], task.dtype, task.quantity)
        size = sum(array.nbytes for array in fetched.values())
        columns |= {"fetch_s": fetch_s, "output_bytes": size, "device_name": adapter.device_of(first_array(output))}
        arrays = len(fetched) * batch_size
        del output, fetched
        if verdict.status is Status.OK:
            loops = adapter.hidden_loops(step, batches[0])
            traced = subject.instruments.compilations()
            compilations, evaluations = subject.instruments.compilations, subject.instruments.evaluations
            warm = warm_up(adapter, step, batches, task.target_s * WARMUP_SHARE, compilations)
            if task.checks:
                verdict = _with_problem(verdict, _problems_of_a_result(subject, step, batches, arrays, warm.times[-1]))
        if verdict.status is Status.OK:
            warm_traces, evaluated = compilations() - traced, evaluations.count
            verdicts = [verdict]

            def look(number: int, output: Gradients) -> None:
                verdicts.append(compare.check(subject.fetch(output), references[number], task.dtype, task.quantity))

            most_calls = calls_before_a_leak_fills_memory(warm)
            timing = take_turns(adapter, step, batches, next_turn, look, warm.times[-1], most_calls)
            retraces = compilations() - traced - warm_traces
            verdict = max(verdicts, key=_severity)
            columns |= _columns(timing, warm) | {"retraces": retraces}
            per_instance = (evaluations.count - evaluated) / timing.calls_made / batch_size
            marks = _marks(warm, timing, retraces, loops, subject.instruments.forks(), size, per_instance)
            fallbacks += filter(None, [elsewhere.some])
            columns["marks"] = (*marks, *(Mark(MarkKind.SLOW_FALLBACK, text) for text in fallbacks))
            if verdict.status is Status.OK and task.checks:
                verdict = _with_problem(verdict, _problems(subject, step, batches, references, timing))
            if task.checks:
                problem.facts.update({name: find() for name, find in problem.afterwards.items()})
                changed = result_checks.unchanged(before, result_checks.digests(adapter, problem, batches))
                verdict = _with_problem(verdict, [("unchanged", changed)])
    return task.row(
        batch_size,
        verdict.status,
        verdict.reason,
        max_relative_error=verdict.max_relative_error,
        of_tolerance=verdict.of_tolerance,
        digits=verdict.digits,
        broken=verdict.broken,
        worst_parameter=verdict.worst_parameter,
        worst_instance=verdict.worst_instance,
        rows_checked=verdict.rows_checked,
        peak_bytes=memory.peak_above_start(),
        **columns,
    )


def refuse_what_cannot_fit(subject: Subject, batch_size: int) -> None:
    """Raise MemoryError if the rows alone take more than what is free; nothing has been built yet.

    Rows on another device than the CPU have to fit there, and into the host's memory when they are fetched.
    """
    if subject.task.quantity != "gradients":
        return
    values = sum(value.size for value in subject.workload.initial_parameters(subject.task.seed).values())
    itemsize = DTYPES[subject.task.dtype]
    places: dict[str, int | None] = {"": available_bytes()}
    if subject.device.kind != "cpu":
        known = subject.adapter.free_memory(subject.device)
        card = gpu.card() if known is None else None
        places[f" on {subject.device.name}"] = card.free_bytes if card else known
    needed = batch_size * values * itemsize
    for place, free in places.items():
        if free is not None and needed > free:
            raise MemoryError(
                f"predicted: {batch_size} rows of {values:,} values take {needed / 2**30:.1f} GiB, "
                f"{free / 2**30:.1f} GiB are free{place}"
            )


class Elsewhere(NamedTuple):
    """What was computed beside the device: in words if it was all, in words if it was some of it."""

    all: str = ""
    some: str = ""


def beside_the_device(placed: Counter[tuple[str, str]], device: Device) -> Elsewhere:
    """What the graphs' operations say about where they were computed; nothing where there are no graphs."""
    others = Counter[str]()
    for (operation, place), count in placed.items():
        if place != device.handle:
            others[operation] += count
    count, of = others.total(), placed.total()
    if not count:
        return Elsewhere()
    named = ", ".join(f"{operation} ({number})" for operation, number in others.most_common(3))
    text = f"{count} of {of} operations of its graphs were computed elsewhere than on {device.name}: {named}"
    return Elsewhere(all=text) if count == of else Elsewhere(some=text)


def calls_before_a_leak_fills_memory(warm: Warmup) -> float:
    """How many timed calls may be made: without limit unless memory grows with each."""
    return available_bytes() / 4 / warm.growth_bytes if warm.growth_bytes > LEAK_BYTES else math.inf


def build(subject: Subject, problem: Problem, batch: Batch) -> tuple[Step, Gradients, float, float]:
    """Build the strategy and call it once: (step, its first output, build seconds, first call's seconds)."""
    started = time.perf_counter()
    step = subject.strategy.build(problem)
    built = time.perf_counter()
    output = subject.adapter.wait(step(batch))
    return step, output, built - started, time.perf_counter() - built


def least_seconds(row: Measurement) -> float | None:
    """The seconds a case cannot do without: build, first call, the fewest calls. None if it was not measured."""
    if row.build_s is None or row.first_call_s is None or row.median_s is None:
        return None
    return row.build_s + row.first_call_s + FEWEST_CALLS * row.median_s


def trial(subject: Subject, batch_size: int) -> float:
    """What `least_seconds` would be at a batch size that is not measured: build, call, and the fastest of later calls.

    A second call may compile once more, for buffers that come from the first, and any call may be disturbed.
    """
    problem = subject.bind(batch_size)
    batch = subject.place(subject.drawn(batch_size, 1)[0])
    with subject.adapter.scope(problem):
        step, _, build_s, first_call_s = build(subject, problem, batch)
        later = []
        for _ in range(TRIAL_CALLS):
            started = time.perf_counter()
            subject.adapter.wait(step(batch))
            later.append(time.perf_counter() - started)
        return build_s + first_call_s + FEWEST_CALLS * min(later)


def _problems_of_a_result(
    subject: Subject, step: Step, batches: list[Batch], arrays: int, call_s: float
) -> Iterator[tuple[str, str]]:
    """(requirement, what is wrong) for a result that was waited for: it is there, and changes no more."""
    output = subject.adapter.wait(step(batches[0]))
    yield "finished", result_checks.finished(subject.fetch, output, call_s)
    if not subject.strategy.reuses_output:
        other = batches[1 % len(batches)]
        yield "kept", result_checks.kept(subject.fetch, output, lambda: subject.adapter.wait(step(other)))
    del output
    yield "fetch", timing_checks.fetch_time(_fetches(subject, step, batches), arrays)


def _fetches(subject: Subject, step: Step, batches: list[Batch]) -> Iterator[tuple[float, Arrays, float]]:
    """(seconds of the fetch, what was fetched, seconds of the call) of up to four calls."""
    for number in range(4):
        started = time.perf_counter()
        output = subject.adapter.wait(step(batches[number % len(batches)]))
        called = time.perf_counter()
        fetched = subject.fetch(output)
        yield time.perf_counter() - called, fetched, called - started


def _problems(
    subject: Subject, step: Step, batches: list[Batch], references: list[Reference], timing: Timing
) -> Iterator[tuple[str, str]]:
    """(requirement, what is wrong) for the clock and the rows; a check is made only if the last found nothing."""
    task, adapter, fetch = subject.task, subject.adapter, subject.fetch
    first, second = subject.drawn(references[0].batch_size, 2)
    place, reference, dtype, quantity = subject.place, references[0], task.dtype, task.quantity
    yield "clock", timing_checks.outside(timing)
    yield "doubling", timing_checks.doubling(adapter, step, batches, fetch, timing.median_s)
    fresh = timing_checks.fresh_batches(
        adapter, step, place, first, reference, fetch, dtype, batches[0], task.seed, quantity
    )
    yield "fresh batches", fresh
    yield "independence", result_checks.independence(step, place, (first, second), reference, fetch, dtype, quantity)


def _columns(timing: Timing, warm: Warmup) -> dict[str, Any]:
    return {
        "samples_ns": tuple(turn.call_ns for turn in timing.turns),
        "calls": sum(turn.calls for turn in timing.turns),
        "timed_s": sum(turn.timed_s for turn in timing.turns),
        "median_s": timing.median_s,
        "warmup_calls": len(warm.times),
        "minor_faults": timing.minor_faults,
        "cores_busy": timing.cores_busy,
        "system_share": timing.system_share,
    }


def _marks(
    warm: Warmup,
    timing: Timing,
    retraces: int,
    loops: int | None,
    forks: int,
    output_bytes: int,
    evaluations: float,
) -> Iterator[Mark]:
    """Remarks that stand beside the time."""
    if not warm.settled:
        yield Mark(MarkKind.UNSETTLED, "warm-up had not settled")
    if worked := timing_checks.outside_its_turn(timing):
        yield Mark(MarkKind.OUTSIDE_TURN, worked)
    if retraces:
        yield Mark(MarkKind.RETRACES, f"{retraces} retraces in the timed calls")
    if loops:
        yield Mark(MarkKind.HIDDEN_LOOPS, f"{loops} hidden loops: While nodes in its graph")
    if timing.growth_bytes > LEAK_BYTES + output_bytes / 50:
        yield Mark(MarkKind.LEAK, f"memory grows by {timing.growth_bytes / 1e6:.0f} MB with every call")
    if forks:
        yield Mark(MarkKind.FORKS, "forks a process that has threads")
    if evaluations > 1:
        yield Mark(MarkKind.EVALUATIONS, f"evaluates the loss {evaluations:g} times per instance")


def _with_problem(verdict: Agreement, problems: Iterable[tuple[str, str]]) -> Agreement:
    """The verdict, or `disagrees` with the first (requirement, problem) there is."""
    requirement, found = next((entry for entry in problems if entry[1]), ("", ""))
    if not found or verdict.status is not Status.OK:
        return verdict
    return replace(verdict, status=Status.DISAGREES, reason=found, broken=requirement)


def _severity(verdict: Agreement) -> tuple[bool, float]:
    return verdict.status is not Status.OK, verdict.max_relative_error or 0.0
