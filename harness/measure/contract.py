"""The contract of a strategy: every requirement that is checked, and what to do where it is not met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    """One requirement.

    Attributes:
        means: what is checked, in one sentence.
        hint: what to do where it is not met.
    """

    means: str
    hint: str


CONTRACT: Mapping[str, Requirement] = {
    "contract": Requirement(
        "returns a dict of the framework's own arrays, or a list of one such dict per instance",
        "return plain dicts, and leave the conversion to NumPy to the harness",
    ),
    "device": Requirement(
        "every array of the result lies on the device that is measured, and was computed there",
        "create arrays on problem.device, and copy nothing to the host",
    ),
    "names": Requirement(
        "every parameter has its gradient, under its own name",
        "return exactly the keys of problem.parameters",
    ),
    "shape": Requirement(
        "the first axis of every array is the instance, the others are the parameter's",
        "return arrays (B, *parameter.shape); for a framework that sums over the batch, differentiate one instance",
    ),
    "dtype": Requirement(
        "gradients have the dtype of the parameters",
        "neither cast down inside nor let a Python scalar or another library cast up",
    ),
    "finite": Requirement(
        "no gradient is NaN or infinite where the true one is not",
        "look for a division, log or sqrt at 0 under a where(), or an overflow in a lower precision",
    ),
    "rows": Requirement(
        "every row is that instance's own gradient, within what plain arithmetic in this dtype may err",
        "compare the named row of the named parameter with a loop over the instances",
    ),
    "sum of rows": Requirement(
        "a random weighted sum of all rows is the gradient of the weighted loss",
        "rows beyond the sample are wrong: look at what happens to the last chunk of a batch",
    ),
    "finished": Requirement(
        "a result does not change after the call has returned",
        "wait for your own threads and streams before returning",
    ),
    "kept": Requirement(
        "a result stays as it is when the next call is made",
        "return new arrays, or say reuses_output=True",
    ),
    "fetch": Requirement(
        "copying a result to NumPy does no other work",
        "compute in the call, do not return something lazy",
    ),
    "clock": Requirement(
        "nothing is done between one call and the next",
        "do not leave work to threads, destructors or callbacks",
    ),
    "doubling": Requirement(
        "twice as many calls take twice as long",
        "the call returns before its work is done: return arrays that the framework can wait for",
    ),
    "fresh batches": Requirement(
        "batches never seen before give their own rows, in their order, and take no longer than known ones",
        "remember nothing from one call to the next but buffers, and trace with the batch as an argument",
    ),
    "independence": Requirement(
        "exchanging one instance changes its own row only",
        "look for a reduction over the axis of the instances: a mean, a normalisation, a shared maximum",
    ),
    "unchanged": Requirement(
        "no parameter and no input is changed",
        "do not write in place, and donate no buffer but your own",
    ),
}
"""Requirement -> what it means, in the order of checking."""
