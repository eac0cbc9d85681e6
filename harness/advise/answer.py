"""The answer of `pergrad advise`, as data and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.advise import race
from harness.advise.race import Question, Race
from harness.analysis import formats, scaling, statistics
from harness.analysis.statistics import Interval
from harness.core.domain import DEVICE_NAMES, QUANTITIES
from harness.core.strategy import Strategy


@dataclass(frozen=True)
class Place:
    """One strategy in the ranking.

    Attributes:
        seconds: the time of one call, with its 95 % interval.
        behind: that time over the leader's, with its interval.
        once_s: build and first call.
        pays_after: calls after which it beats the leader's neighbour that starts soonest; None if it never does.
        peak_bytes: memory above the state before the build; None where the system does not tell.
        rounds: how many processes have measured it; 0 is a rough first look.
        can_win: whether it may be the fastest after all.
        reuses_output: whether its result is valid until its next call only.
        environment: variables that it needs before its framework is imported, as `NAME=value`.
    """

    strategy: str
    seconds: Interval
    behind: Interval
    once_s: float
    pays_after: int | None
    peak_bytes: int | None
    rounds: int
    can_win: bool
    reuses_output: bool
    environment: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The strategy's name, with the sign of those that overwrite their last result."""
        return formats.marked(self.strategy, self.reuses_output)


@dataclass(frozen=True)
class Advice:
    """Everything that `pergrad advise` says."""

    workload: str
    batch_size: int
    quantity: str
    device: str
    ranking: tuple[Place, ...]
    noise: float
    left_out: Mapping[str, str]
    not_tried: Mapping[str, float]
    without_rows: str
    code: str
    expected: str = ""
    """The strategy that earlier runs make the most promising, where nothing could be measured; empty elsewhere."""

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)


def advice(state: Race, strategies: Sequence[Strategy], found: Sequence[tuple[Strategy, float]]) -> Advice:
    """What a race says.

    Args:
        strategies: all, for the code of the winner.
        found: what `race.candidates` returned.
    """
    question, ranking = state.question, state.ranking()
    rows = {name: state.rows(name)[-1] for name, _ in ranking}
    once = {name: (row.build_s or 0.0) + (row.first_call_s or 0.0) for name, row in rows.items()}
    environments = {one.name: formats.variables(one.environment) for one, _ in found}
    survivors = next(iter(state.contests()), [])
    places = []
    soonest = min(once, key=lambda name: once[name], default="")
    times = dict(ranking)
    for name, time in ranking:
        saved = scaling.calls_to_pay(once[name] - once[soonest], time.value, times[soonest].value)
        places.append(
            Place(
                strategy=name,
                seconds=Interval(time.value, time.low, time.high),
                behind=statistics.ratio(time, ranking[0][1]) if name != ranking[0][0] else Interval(1.0, 1.0, 1.0),
                once_s=once[name],
                pays_after=0 if name == soonest else saved,
                peak_bytes=rows[name].peak_bytes,
                rounds=len(state.rounds.get(name, [])),
                can_win=name in survivors,
                reuses_output=name in state.reusing,
                environment=environments.get(name, ()),
            )
        )
    expected = "" if places else next(iter(race.undecided(state, found)), "")
    chosen = [s for s in strategies if s.name == (places[0].strategy if places else expected)]
    return Advice(
        workload=question.name,
        batch_size=question.batch_size,
        quantity=question.quantity,
        device=DEVICE_NAMES[question.device],
        ranking=tuple(places),
        noise=state.noise(),
        left_out=race.left_out(state, found),
        not_tried=race.not_tried(state, found),
        without_rows=_without_rows(question),
        code=chosen[0].code if chosen else "",
        expected=expected,
    )


def _without_rows(question: Question) -> str:
    """Whether the rows are needed at all."""
    if question.quantity != "gradients":
        return f"{question.quantity} does not need the rows: direct ways stand here beside those that reduce rows."
    return (
        "You may not need the rows: for a sum of weight x gradient, for norms and for clipped sums there are direct "
        f"ways; ask with --quantity {', '.join(name for name in QUANTITIES if name != 'gradients')}."
    )


def as_text(advice: Advice) -> str:
    """The answer, then the ranking, what was left out and why, and the code to copy."""
    lines = [_answer(advice), ""]
    if advice.ranking:
        lines += [*_table(advice.ranking), ""]
    for name, reason in advice.left_out.items():
        lines.append(f"not ranked: {name}: {reason}")
    if advice.not_tried:
        named = ", ".join(f"{name} ({ratio:.2g} times)" for name, ratio in advice.not_tried.items())
        runs = "earlier runs let" if advice.device == DEVICE_NAMES["cpu"] else "earlier runs, most on the CPU, let"
        lines.append(f"not tried, with the time over the fastest's that {runs} expect: {named}")
    lines += ["", advice.without_rows]
    if advice.code:
        name = advice.ranking[0].strategy if advice.ranking else advice.expected
        lines += ["", f"Copy this ({name}):", "", advice.code.rstrip()]
    return "\n".join(lines)


def _answer(advice: Advice) -> str:
    asked = f"For {advice.quantity} of {advice.workload} at batch size {advice.batch_size} on {advice.device}"
    if advice.expected:
        return (
            f"{asked} nothing could be measured in time. Try {advice.expected}: earlier runs, of other models, make it "
            "the most promising; whether it runs this one is not known. Give it more time with --within."
        )
    if not advice.ranking:
        return f"{asked} there is no answer: no strategy that was tried runs it, for the reasons below."
    first = advice.ranking[0]
    others = [place.strategy for place in advice.ranking[1:] if place.can_win]
    answer = f"{asked} use {first.strategy}: {formats.duration(first.seconds.value)} per call{_range(first.seconds)}."
    if others:
        within = f"is within the noise ({formats.percent(advice.noise)}): any of them will do."
        answer += f" The difference to {formats.enumeration(others)} {within}"
    elif len(advice.ranking) > 1:
        second = advice.ranking[1]
        answer += f" The next, {second.strategy}, takes {second.behind.value:.2f} times as long."
    answer += formats.needs(first.environment)
    if first.reuses_output:
        kept = next((place for place in advice.ranking if not place.reuses_output), None)
        answer += " Its result is valid until the next call"
        if kept:
            answer += f"; if you keep results, use {kept.strategy}: {formats.duration(kept.seconds.value)} per call"
            answer += f"{_range(kept.seconds)}"
        answer += "."
    if first.rounds == 0:
        answer += " This is a first look only: give it more time with --within."
    return answer


def _table(ranking: Sequence[Place]) -> list[str]:
    width = max(len(place.shown) for place in ranking)
    header = f"{'':<{width}}  {'per call':>9}  {'95 % interval':>20}  {'behind':>7}  {'once':>8}  {'pays after':>11}"
    lines = [f"{header}  {'memory':>9}  measured"]
    for place in ranking:
        pays = "at once" if place.pays_after == 0 else "never" if place.pays_after is None else f"{place.pays_after:,}"
        rounds = f"{place.rounds} rounds" if place.rounds > 1 else "1 round" if place.rounds else "first look"
        lines.append(
            f"{place.shown:<{width}}  {formats.duration(place.seconds.value):>9}  {_range(place.seconds):>20}  "
            f"{place.behind.value:>7.2f}  {formats.duration(place.once_s):>8}  {pays:>11}  "
            f"{formats.size(place.peak_bytes) if place.peak_bytes else '':>9}  {rounds}"
        )
    if any(place.reuses_output for place in ranking):
        lines.append(f"{formats.OVERWRITTEN}: the result is valid until the next call only.")
    lines.append(
        "behind: time over the leader's. once: build and first call; it pays after so many calls, against the "
        "strategy that starts soonest."
    )
    return lines


def _range(time: Interval) -> str:
    if time.low is None or time.high is None:
        return ""
    return f" [{formats.duration(time.low)}, {formats.duration(time.high)}]"
