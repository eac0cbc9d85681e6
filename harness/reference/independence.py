"""Refuse a workload whose losses are not one number per instance, its own: wrong shapes, randomness, coupling."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.core.plugins import PluginError
from harness.core.user_code import Failing
from harness.reference.gradients import ReferenceGradients

TOGETHER = 8
"""How many instances are computed as one batch and alone."""

CLOSE, NOTHING = 1e-6, 1e-10
"""Gradients in a batch and alone may differ by this much of a parameter's largest entry, and of the largest of all:
sums in another order, in float64. A bias that a softmax cancels has a gradient of rounding errors only."""


class Coupled(PluginError):
    """A workload in which the loss of one instance depends on the others, so that it has no gradient of its own."""


class Random(PluginError):
    """A workload whose losses differ from call to call."""


def refuse_unfit(exact: ReferenceGradients, coupled: bool = True) -> None:
    """Refuse losses without a reference.

    Args:
        coupled: whether to look for coupled instances, which takes some gradients.

    Raises:
        Failing: if losses have another shape than (B,), or are no floating-point numbers.
        Random: if the same call gives other losses.
        Coupled: if an instance has another loss or another gradient in a batch than alone.
    """
    count = min(TOGETHER, exact.size)
    if not count:
        return
    together = _losses(exact, slice(0, count))
    again = _losses(exact, slice(0, count))
    if not np.array_equal(together, again, equal_nan=True):
        i = int(np.argmax(np.abs(together - again)))
        raise Random(
            f"workload {exact.workload.name} draws random numbers in its losses: the same call gives {together[i]:.9g} "
            f"and {again[i]:.9g} for instance {i}, as dropout in training does. Switch it to evaluation, as "
            "model.eval() does, or have batch() draw the numbers"
        )
    if not coupled or count < 2:
        return
    alone = np.array([_losses(exact, slice(i, i + 1))[0] for i in range(count)])
    if not np.allclose(together, alone, rtol=1e-9, atol=1e-12, equal_nan=True):
        i = int(np.nanargmax(np.abs(together - alone)))
        raise _coupled(exact, i, "loss", f"{alone[i]:.9g}", f"{together[i]:.9g}", count)
    with np.errstate(all="ignore"):  # a gradient that is not finite is refused elsewhere
        _refuse_coupled_gradients(exact, count)


def _refuse_coupled_gradients(exact: ReferenceGradients, count: int) -> None:
    """Losses may be those of the instances alone where gradients are not: behind a factor of 0, or a constant."""
    rows = exact.rows(range(count))
    weights = np.random.default_rng(count).uniform(0.5, 1.5, count)

    def differs(weights: np.ndarray[Any, Any]) -> str:
        """The parameter whose gradient of the weighted losses is not the sum of the rows; empty if there is none."""
        summed = exact.of_batch(slice(0, count), weights)
        sizes = {name: np.tensordot(weights, np.abs(value), axes=1).max(initial=0) for name, value in rows.items()}
        for name, value in rows.items():
            off = np.abs(summed[name] - np.tensordot(weights, value, axes=1)).max(initial=0)
            if off > CLOSE * sizes[name] + NOTHING * max(sizes.values()):
                return name
        return ""

    if differs(weights):
        one_hot = np.eye(count)
        i, name = next(((i, name) for i in range(count) if (name := differs(one_hot[i]))), (0, differs(weights)))
        norms = [np.linalg.norm(rows[name][i]), np.linalg.norm(exact.of_batch(slice(0, count), one_hot[i])[name])]
        raise _coupled(exact, i, f"gradient of {name} (its norm)", f"{norms[0]:.6g}", f"{norms[1]:.6g}", count)


def _coupled(exact: ReferenceGradients, i: int, what: str, alone: str, together: str, count: int) -> Coupled:
    return Coupled(
        f"workload {exact.workload.name} couples its instances: the {what} of instance {i} is {alone} alone and "
        f"{together} in a batch of {count}, as with batch normalisation. Its instances have no gradients of their own; "
        "make the statistics parameters or inputs"
    )


def _losses(exact: ReferenceGradients, chosen: slice) -> np.ndarray[Any, Any]:
    """The losses of some instances, (n,), in float64."""
    count = chosen.stop - chosen.start
    given: Any = exact.native_losses(chosen)
    name = exact.workload.name
    kind = type(given).__name__
    if not isinstance(given, exact.adapter.array_types):
        raise Failing(f"losses() of workload {name} returns {kind}, expected an array of shape (B,)")
    shape = tuple(int(side) for side in getattr(given, "shape"))  # noqa: B009
    if shape != (count,):
        raise Failing(
            f"losses() of workload {name} returns shape {shape} for a batch of {count}, expected ({count},)"
            f"{cause_of_shape(shape, count)}"
        )
    losses = exact.adapter.numpy(given)
    if losses.dtype != np.float64:
        raise Failing(
            f"workload {name} computes its losses in {losses.dtype.name} where parameters and inputs are float64, so "
            "that there is no reference: let its dtype follow from theirs"
        )
    return losses


def cause_of_shape(shape: tuple[int, ...], count: int) -> str:
    """Why losses may have another shape than (B,); a phrase after a colon."""
    if count == 1 and shape == ():
        return ": a squeeze without an axis removes that of the instances too, or the losses are averaged over it"
    if shape == ():
        return ': they are averaged or summed over the instances; write reduction="none" or name the other axes'
    if shape == (count, 1):
        return ": the last axis of length 1 is left; squeeze it by its number"
    if shape == (count, count):
        return ": predictions (B, 1) minus targets (B,) broadcast to (B, B); give both one shape"
    if shape[0] == count:
        return ": one loss per instance is wanted; sum or average over the other axes"
    return ": the first axis must be that of the instances, and the only one"
