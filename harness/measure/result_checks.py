"""Is what came back a result? It is complete, it is the caller's to keep, and every instance has its own row.

Each check returns a sentence that says what is wrong, empty if nothing is. They are made once per case and run.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from harness.core.problem import Batch, Gradients, Problem
from harness.core.records import Status
from harness.core.workload import Arrays
from harness.frameworks import Adapter
from harness.reference import compare
from harness.reference.result import Reference

Place = Callable[[Arrays], Batch]
Fetch = Callable[[Gradients], Arrays]


def contract(adapter: Adapter, output: Any) -> str:
    """The output is a plain dict, or a plain list of them, of the framework's own arrays."""
    instances = [output] if type(output) is dict else output
    if type(instances) not in (list, tuple) or not all(type(row) is dict for row in instances):
        return f"returned {_kind(output)}, expected a dict of arrays or a list of such dicts"
    for row in instances:
        for name, value in row.items():
            if not isinstance(value, adapter.array_types):
                return f"{name} is {_kind(value)}, expected an array of {adapter.name}"
    for number, row in enumerate(instances):
        if row.keys() != instances[0].keys():
            names = sorted(map(str, row.keys() ^ instances[0].keys()))
            return f"row {number} has other names than row 0: {', '.join(names)} in one of them only"
    return ""


def finished(fetch: Fetch, output: Gradients, call_s: float) -> str:
    """A result does not change after the call has returned, as it would if a thread were still at work."""
    if changed := _changed_by(lambda: time.sleep(min(0.25, max(0.05, call_s))), fetch, output):
        return f"{changed} changed after the call had returned: its work was not waited for"
    return ""


def kept(fetch: Fetch, output: Gradients, call_again: Callable[[], object]) -> str:
    """A result does not change with the next call, as it would if that wrote into the same memory."""
    if changed := _changed_by(call_again, fetch, output):
        return f"{changed} changed with the next call, which overwrites it: say reuses_output=True"
    return ""


def _checksums(arrays: Arrays) -> dict[str, int]:
    return {name: _checksum(value) for name, value in arrays.items()}


def _changed_by(act: Callable[[], object], fetch: Fetch, output: Gradients) -> str:
    """The first parameter whose values `act` has changed in a result; empty if there is none."""
    before = _checksums(fetch(output))
    act()
    after = _checksums(fetch(output))
    return next((name for name in before if before[name] != after[name]), "")


def _checksum(array: np.ndarray[Any, Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data)


def independence(
    step: Callable[[Batch], Gradients],
    place: Place,
    drawn: tuple[Arrays, Arrays],
    reference: Reference,
    fetch: Fetch,
    dtype: str,
    quantity: str = "gradients",
) -> str:
    """Exchanging one instance leaves the rows of all others alone, and their norms."""
    if reference.batch_size < 2 or quantity in compare.SUMS:
        return ""
    index = reference.batch_size // 2
    first, second = drawn
    mixed = {name: value.copy() for name, value in first.items()}
    for name, value in mixed.items():
        value[index] = second[name][index]
    verdict = compare.check(fetch(step(place(mixed))), reference.without(index), dtype, quantity)
    if verdict.status is Status.OK:
        return ""
    return f"exchanging instance {index} changes the rows of others: {verdict.reason}"


def digests(adapter: Adapter, problem: Problem, batches: list[Batch]) -> dict[str, str]:
    """A hash of every parameter and input, to be compared before and after."""
    named = {f"parameter {name}": value for name, value in adapter.readable(problem).items()}
    for number, batch in enumerate(batches):
        named |= {f"input {name} of batch {number}": value for name, value in batch.items()}
    return {
        name: hashlib.blake2b(np.ascontiguousarray(adapter.numpy(value)).tobytes(), digest_size=16).hexdigest()
        for name, value in named.items()
    }


def unchanged(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """No parameter and no input was changed by the calls."""
    changed = [name for name in before if before[name] != after[name]]
    return f"{', '.join(changed[:3])} changed by the calls" if changed else ""


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__module__}.{type(value).__qualname__}"
