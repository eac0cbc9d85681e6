"""The steady state of one case: warm-up until the times settle, then turns of timed calls with rotating inputs.

Strategies that are compared take turns, since a machine's speed drifts: each is measured for a short while again and
again, in a process of its own that waits while others are measured. Who takes a turn, and for how long, is decided
outside (`harness.runner.heat`).
"""

from __future__ import annotations

import gc
import itertools
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from harness.core.problem import Batch, Gradients, Step
from harness.core.records import FEWEST_ROUNDS
from harness.frameworks import Adapter
from harness.system.info import status_bytes

FEWEST_WARMUP = 3

CHECK_CALLS = 9
"""Calls that the checks of a slow strategy make."""

FEWEST_CALLS = FEWEST_WARMUP + FEWEST_ROUNDS + CHECK_CALLS
"""Calls that a case cannot do without."""

WARMUP_SHARE = 0.25
"""Warm-up takes at most this share of the time that the timed calls aim for, but at least `FEWEST_WARMUP` calls."""

SLOW_S = 0.1
"""A call that takes longer is a turn by itself, and none is discarded: cold caches cost far less than one call."""

CALLS_PER_TURN = 3
"""Calls of a turn at least, where they are not slow."""

DISCARDED_SHARE = 0.05
"""The first calls of a turn are discarded for this share of it, one at least: caches and threads were another's."""

FETCHED_TURNS = (0, 3)
"""The last results of these turns are checked, as is that of a call after the last turn."""

Look = Callable[[int, Gradients], None]
"""Looks at a result for the batch of that number."""


@dataclass(frozen=True)
class Turn:
    """One turn: the median of its calls in nanoseconds, how many were timed, and the seconds they took in all."""

    call_ns: int
    calls: int
    timed_s: float


NextTurn = Callable[[Turn | None], float | None]
"""Told the turn that has just ended (None before the first), gives the seconds of the next; None after the last."""


@dataclass(frozen=True)
class Warmup:
    """What the calls before the clock showed: their times in seconds, and how memory grew with each."""

    times: tuple[float, ...]
    growth_bytes: float

    @property
    def settled(self) -> bool:
        """Whether the times had stopped changing."""
        return settled(self.times)


@dataclass(frozen=True)
class Timing:
    """What the turns of one case showed; per call where it is neither a list nor says otherwise.

    Attributes:
        turns: every turn, in order.
        between_s: seconds that typically pass from the end of one call to the next within a turn.
        outside_s: CPU seconds that the process typically used between two of its turns, when others were measured.
        turn_cpu_s: CPU seconds that it typically used within a turn.
        calls_made: calls in all, those that were discarded included.
        growth_bytes: what the process's memory typically grew by with every call, from turn to turn.
    """

    turns: tuple[Turn, ...]
    between_s: float
    outside_s: float
    turn_cpu_s: float
    minor_faults: float
    cores_busy: float
    system_share: float
    calls_made: int
    growth_bytes: float

    @property
    def median_s(self) -> float:
        """Median over turns of the median of their calls, in seconds."""
        return statistics.median(turn.call_ns for turn in self.turns) * 1e-9


def warm_up(
    adapter: Adapter, step: Step, batches: list[Batch], most_s: float, compilations: Callable[[], int] = lambda: 0
) -> Warmup:
    """Call until the times have settled or `most_s` is over, at least `FEWEST_WARMUP` times.

    A call that compiles begins the warm-up anew: it says nothing about the calls that follow.
    """
    times: list[float] = []
    memory: list[int] = []
    number, compiled = 0, compilations()
    end = time.perf_counter() + most_s
    while len(times) < FEWEST_WARMUP or (not settled(times) and time.perf_counter() < end):
        started = time.perf_counter()
        adapter.wait(step(batches[number % len(batches)]))
        number += 1
        if compilations() != compiled and number <= MOST_COMPILING_CALLS:
            compiled = compilations()
            times, memory = [], []
            end = time.perf_counter() + most_s
            continue
        times.append(time.perf_counter() - started)
        memory.append(status_bytes("VmRSS") or 0)
    # The first calls may fill caches of the framework; a leak goes on after them.
    return Warmup(tuple(times), (memory[-1] - memory[1]) / (len(memory) - 2))


MOST_COMPILING_CALLS = 10
"""A strategy that compiles in more of its first calls compiles in all of them."""


def settled(times: list[float] | tuple[float, ...]) -> bool:
    """Whether the median of the last five times is within 5 % of the median of the five before them.

    Fewer than ten times have settled if they are slow (over 20 ms) and the last is within 10 % of the median of
    the last three: slow calls leave no time for more.
    """
    if len(times) >= 10:
        return abs(statistics.median(times[-5:]) / statistics.median(times[-10:-5]) - 1) < 0.05
    return times[-1] > 0.02 and abs(times[-1] / statistics.median(times[-3:]) - 1) < 0.1


def take_turns(
    adapter: Adapter,
    step: Step,
    batches: list[Batch],
    next_turn: NextTurn,
    look: Look,
    call_s: float,
    most_calls: float = float("inf"),
) -> Timing:
    """The steady state: turns of calls under the clock, each waited for, the inputs rotating, until there is none left.

    The result of a call is released before the next one, outside its clock. Garbage is collected between turns.

    Args:
        next_turn: called before the first turn and after every one.
        look: given the number of a batch and a result for it, of some timed calls and of one after the last turn; the
            result is released afterwards.
        call_s: about what a call takes, from the warm-up.
        most_calls: after so many in all, a turn is one call: what a leak leaves memory for.
    """
    turns: list[Turn] = []
    between: list[float] = []
    outside: list[float] = []
    usage = Usage()
    number = 0
    memory: list[tuple[int, int]] = []
    last: Turn | None = None
    idle = time.process_time()
    while (seconds := next_turn(last)) is not None:
        if turns:
            outside.append(time.process_time() - idle)
        slow = (turns[-1].call_ns * 1e-9 if turns else call_s) > SLOW_S or number > most_calls
        calls = Calls(adapter, step, batches, number, keep=len(turns) in FETCHED_TURNS)
        gc.disable()
        try:
            if not slow:
                calls.make(DISCARDED_SHARE * seconds, 1)
                calls.forget()
            with usage:
                calls.make(0 if slow else seconds, 1 if slow else CALLS_PER_TURN)
        finally:
            gc.enable()
        number = calls.number
        memory.append((number, status_bytes("VmRSS") or 0))
        if calls.kept is not None:
            look((number - 1) % len(batches), calls.kept)
        last = Turn(round(statistics.median(calls.samples) * 1e9), len(calls.samples), sum(calls.samples))
        turns.append(last)
        between += calls.between
        del calls
        idle = time.process_time()
    look(number % len(batches), adapter.wait(step(batches[number % len(batches)])))
    timed = sum(turn.calls for turn in turns)
    return Timing(
        turns=tuple(turns),
        between_s=statistics.median(between) if between else 0.0,
        outside_s=statistics.median(outside) if outside else 0.0,
        turn_cpu_s=(usage.user_s + usage.system_s) / len(turns),
        minor_faults=usage.minor_faults / timed,
        cores_busy=(usage.user_s + usage.system_s) / usage.wall_s,
        system_share=usage.system_s / (usage.user_s + usage.system_s) if usage.user_s + usage.system_s else 0.0,
        calls_made=number + 1,
        growth_bytes=statistics.median([(b - a) / (m - n) for (n, a), (m, b) in itertools.pairwise(memory)] or [0.0]),
    )


class Calls:
    """Calls of one turn, and the seconds each took; `kept` is the last result, if it is wanted."""

    def __init__(self, adapter: Adapter, step: Step, batches: list[Batch], number: int, keep: bool) -> None:
        self._adapter, self._step, self._batches, self._keep = adapter, step, batches, keep
        self.number = number
        self.kept: Gradients | None = None
        self.forget()

    def forget(self) -> None:
        """Begin to count anew."""
        self.samples: list[float] = []
        self.between: list[float] = []

    def make(self, seconds: float, fewest: int) -> None:
        """Call until `seconds` have passed, at least `fewest` times."""
        step, wait, batches, clock = self._step, self._adapter.wait, self._batches, time.perf_counter
        samples, between = self.samples, self.between
        begun, ended = clock(), 0.0
        while True:
            batch = batches[self.number % len(batches)]
            started = clock()
            output = wait(step(batch))
            now = clock()
            samples.append(now - started)
            if ended:
                between.append(started - ended)
            ended = now
            self.number += 1
            if now - begun >= seconds and len(samples) >= fewest:
                break
            del output  # its release counts between the calls
        if self._keep:
            self.kept = output


class Usage:
    """Adds up the wall time, CPU time and page faults of several stretches, each in a `with` block."""

    def __init__(self) -> None:
        self.wall_s = self.user_s = self.system_s = self.minor_faults = 0.0

    def __enter__(self) -> None:
        self._before, self._started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()

    def __exit__(self, *_: object) -> None:
        after = resource.getrusage(resource.RUSAGE_SELF)
        self.wall_s += time.perf_counter() - self._started
        self.user_s += after.ru_utime - self._before.ru_utime
        self.system_s += after.ru_stime - self._before.ru_stime
        self.minor_faults += after.ru_minflt - self._before.ru_minflt
