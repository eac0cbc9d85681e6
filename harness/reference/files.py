"""Files of references: what was computed for a batch, and the parameters and inputs that it was computed for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.workload import Arrays, Workload, cast
from harness.reference.result import Reference

INPUTS = "inputs"
"""In a file of references, the start of the names of what they were computed for."""


class Irreproducible(Exception):
    """A workload whose parameters or batches differ from process to process, so that it has no reference."""


@dataclass(frozen=True)
class Inputs:
    """What a reference was computed for: parameters and batches as NumPy, in the dtype under test."""

    parameters: Arrays
    batches: tuple[Arrays, ...]


def save(path: Path, references: Sequence[Reference], inputs: Inputs | None = None) -> None:
    """Write the reference for several batches into one file, for the workers to read, with its inputs."""
    arrays: Arrays = {}
    for group, values in _groups(inputs) if inputs else ():
        # A file of NumPy knows no bfloat16; every value of it is one of float32.
        wide = cast(values, "float32") if any(value.dtype.name == "bfloat16" for value in values.values()) else values
        arrays |= {f"{INPUTS}/{group}/{name}": value for name, value in wide.items()}
    for number, reference in enumerate(references):
        for attribute, value in vars(reference).items():
            if isinstance(value, Mapping):
                arrays |= {f"{number}/{attribute}/{name}": array for name, array in value.items()}
            else:
                arrays[f"{number}/{attribute}"] = value
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load(path: Path) -> list[Reference]:
    """Read what `save` wrote. Nothing is unpickled."""
    found: dict[int, dict[str, Any]] = {}
    with np.load(path, allow_pickle=False) as arrays:
        for key in arrays.files:
            if key.startswith(f"{INPUTS}/"):
                continue
            number, attribute, *name = key.split("/", 2)
            entry = found.setdefault(int(number), {})
            if name:
                entry.setdefault(attribute, {})[name[0]] = arrays[key]
            else:
                entry[attribute] = str(arrays[key]) if attribute in ("computed_with", "inputs") else arrays[key]
    return [Reference(**found[number]) for number in sorted(found)]


def load_inputs(path: Path, dtype: str) -> Inputs | None:
    """The inputs that `save` wrote, in the dtype under test; None of a file without them."""
    found: dict[str, Arrays] = {}
    with np.load(path, allow_pickle=False) as arrays:
        for key in arrays.files:
            start, _, rest = key.partition("/")
            if start == INPUTS:
                group, _, name = rest.partition("/")
                found.setdefault(group, {})[name] = arrays[key]
    if not found:
        return None
    parameters = cast(found.pop("parameters", {}), dtype)
    return Inputs(parameters, tuple(cast(found[number], dtype) for number in sorted(found, key=int)))


def _groups(inputs: Inputs) -> Iterator[tuple[str, Arrays]]:
    yield "parameters", inputs.parameters
    for number, batch in enumerate(inputs.batches):
        yield str(number), batch


def digest(parameters: Mapping[str, np.ndarray[Any, Any]], batch: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """A hash of the names and values of parameters and inputs."""
    found = hashlib.blake2b(digest_size=16)
    for name, value in sorted({**parameters, **batch}.items()):
        found.update(name.encode() + np.ascontiguousarray(value).tobytes())
    return found.hexdigest()


def refuse_other_inputs(reference: Reference, workload: Workload, parameters: Arrays, batch: Arrays) -> None:
    """Refuse inputs that the reference was not computed for.

    Raises:
        Irreproducible: if this process has drawn other parameters or another batch.
    """
    if reference.inputs and reference.inputs != digest({**parameters, **workload.state()}, batch):
        raise Irreproducible(
            f"workload {workload.name} has other parameters or batches in every process: draw them from rng, and seed "
            "what its framework draws by itself, as with torch.manual_seed(0)"
        )
