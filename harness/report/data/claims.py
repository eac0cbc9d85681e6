"""The claims of the question and its answers, each put to the measured cases.

A claim is data: what was said, by whom, which cases it needs, and a function that looks at them. Add another to
`CLAIMS`, and it is judged in every report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.analysis import formats, scaling
from harness.analysis.statistics import Verdict
from harness.report.data.evidence import Evidence, Series, Versus, at_every_size, compare
from harness.report.data.published_figures import CONCURRENT, LOOP, PLAIN, UNSTACK, WORKLOAD

LINEAR = 0.9
"""The least exponent in B that counts as linear: ten times the batch then takes at least eight times as long."""

FAR = 10.0
"""How many times cheaper something must be to be far cheaper."""


class Ruling(StrEnum):
    """What the measured cases say of a claim."""

    HOLDS = "holds here"
    FAILS = "does not hold here"
    UNDECIDED = "undecided here"
    NOT_MEASURED = "not measured"


SIGNS = {Ruling.HOLDS: "✓", Ruling.FAILS: "✕", Ruling.UNDECIDED: "≈", Ruling.NOT_MEASURED: "–"}


@dataclass(frozen=True)
class Finding:
    """A ruling with its numbers, and why things are so."""

    ruling: Ruling
    numbers: str
    why: str = ""

    @property
    def sign(self) -> str:
        """The ruling without words."""
        return SIGNS[self.ruling]


@dataclass(frozen=True)
class Claim:
    """Something that was said and can be measured."""

    text: str
    source: str
    needs: str
    """The cases without which it cannot be judged."""
    test: Callable[[Evidence], Finding | None]
    """None where those cases have no time."""


@dataclass(frozen=True)
class Judged:
    """A claim with what one run says of it."""

    claim: Claim
    finding: Finding


def judge(evidence: Evidence, claims: Sequence[Claim] | None = None) -> list[Judged]:
    """Every claim with its finding; `CLAIMS` unless others are given."""
    return [
        Judged(claim, claim.test(evidence) or Finding(Ruling.NOT_MEASURED, f"It takes {claim.needs}."))
        for claim in (CLAIMS if claims is None else claims)
    ]


def _comes_back_summed(evidence: Evidence) -> Finding | None:
    plain = evidence.one(WORKLOAD, PLAIN, "weighted_sum")
    sizes = {size: line.output_bytes for size, line in plain.lines.items()} if plain else {}
    if plain is None or len(sizes) < 2:
        return None
    low, high = min(sizes), max(sizes)
    grows = sizes[high] > sizes[low]
    return Finding(
        Ruling.FAILS if grows else Ruling.HOLDS,
        f"{plain.strategy} returns {formats.size(sizes[low])} at batch size {low:,} and {formats.size(sizes[high])} at "
        f"{high:,}.",
        "" if grows else "One array per parameter, whatever the batch size: backpropagation adds the instances up.",
    )


def _concurrency(evidence: Evidence) -> Finding | None:
    loop, concurrent = (evidence.one(WORKLOAD, name) for name in (LOOP, CONCURRENT))
    found = compare(loop, concurrent) if loop and concurrent else None
    if found is None:
        return None
    busy = found.fast.lines[found.batch_size].cores_busy
    cores = f" Cores busy: {formats.number(busy, 2)}." if busy == busy else ""
    why = "A step of so small a network is mostly Python, which one thread at a time may run."
    return Finding(
        {Verdict.FASTER: Ruling.HOLDS, Verdict.AMBIGUOUS: Ruling.UNDECIDED}.get(found.verdict, Ruling.FAILS),
        f"{_says(found)}.{cores}",
        "Steps overlap outside Python." if found.verdict is Verdict.FASTER else why,
    )


def _unstack_twice(evidence: Evidence) -> Finding | None:
    pair = _loop_and_unstack(evidence)
    found = at_every_size(*pair) if pair else []
    if not found:
        return None
    best = max(found, key=lambda comparison: comparison.ratio.value)
    low, high = best.ratio.low, best.ratio.high
    ruling = Ruling.UNDECIDED
    if low is not None and low > 2:
        ruling = Ruling.FAILS
    elif high is not None and high <= 2:
        ruling = Ruling.HOLDS
    return Finding(
        ruling,
        f"At best {_says(best)}.",
        "" if ruling is Ruling.HOLDS else "The loop pays for one call per instance; unstack pays for one in all.",
    )


def _linear_beyond_five(evidence: Evidence) -> Finding | None:
    pair = _loop_and_unstack(evidence)
    lines = {size: line for size, line in pair[1].lines.items() if size >= 5} if pair else {}
    power = scaling.exponent(list(lines), [line.estimate for line in lines.values() if line.estimate])
    if power is None or power.low is None or power.high is None:
        return None
    ruling = Ruling.HOLDS if power.low >= LINEAR else Ruling.FAILS if power.high < LINEAR else Ruling.UNDECIDED
    first, last = min(lines), max(lines)
    each = [formats.duration(lines[size].time_s / size) for size in (first, last)]
    return Finding(
        ruling,
        f"Time grows as B to the {formats.number(power.value, 2)} {formats.factor_interval(power)}: {each[0]} per "
        f"instance at batch size {first:,}, {each[1]} at {last:,}.",
        "Every instance adds its own operations to the graph and its own arrays to the fetch.",
    )


def _sum_is_cheap(evidence: Evidence) -> Finding | None:
    loop, plain = evidence.one(WORKLOAD, LOOP), evidence.one(WORKLOAD, PLAIN, "weighted_sum")
    found = compare(loop, plain) if loop and plain else None
    if found is None or found.batch_size < 100:
        return None
    low, high = found.ratio.low, found.ratio.high
    ruling = Ruling.UNDECIDED
    if low is not None and low > FAR:
        ruling = Ruling.HOLDS
    elif high is not None and high < FAR:
        ruling = Ruling.FAILS
    return Finding(ruling, f"{_says(found)}.", "One pass forward and one back, whatever the batch size.")


def _loop_and_unstack(evidence: Evidence) -> tuple[Series, Series] | None:
    loop, unstack = (evidence.one(WORKLOAD, name) for name in (LOOP, UNSTACK))
    return (loop, unstack) if loop and unstack else None


def _says(found: Versus) -> str:
    return (
        f"{found.fast.strategy} is {formats.speedup(found.ratio)} than {found.slow.strategy} at batch size "
        f"{found.batch_size:,}{_tie(found.verdict)}"
    )


def _tie(verdict: Verdict) -> str:
    return ", a difference within the noise" if verdict in (Verdict.SAME, Verdict.AMBIGUOUS) else ""


CLAIMS = (
    Claim(
        "The gradient of a batch comes back summed.",
        "the question",
        "a plain batch gradient (quantity weighted_sum) on policy, at two batch sizes",
        _comes_back_summed,
    ),
    Claim(
        "Running session.run concurrently uses the machine better.",
        "the first answer",
        f"{LOOP} and {CONCURRENT} on {WORKLOAD}",
        _concurrency,
    ),
    Claim(
        "Unstacking a batch of fixed size gives at most twice the speed.",
        "the second answer",
        f"{LOOP} and {UNSTACK} on {WORKLOAD}",
        _unstack_twice,
    ),
    Claim(
        "Beyond a batch of 5 its time is linear in the batch size, so nothing is gained.",
        "the second answer",
        f"{UNSTACK} on {WORKLOAD}, at two batch sizes from 5 up",
        _linear_beyond_five,
    ),
    Claim(
        "The aggregated gradient of hundreds of instances is far cheaper than theirs one by one.",
        "the question",
        f"{LOOP} and a plain batch gradient (quantity weighted_sum) on {WORKLOAD}, at a batch size from 100 up",
        _sum_is_cheap,
    ),
)
"""In the order in which they were made. Far cheaper is taken as ten times."""
