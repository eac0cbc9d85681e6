"""Run the functions of a workload's file: what they raise, or return wrongly, becomes one sentence."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.plugins import PluginError


class Failing(PluginError):
    """A workload whose functions raise an exception, or return what they may not; the message says which and where."""


@contextlib.contextmanager
def explained(name: str, path: Path, doing: str = "") -> Iterator[None]:
    """Turn what a workload raises into a sentence with the line of its file.

    Args:
        doing: what it fails in, such as `parameters()`.

    Raises:
        Failing: in place of any other exception than a `PluginError` or a lack of memory.
    """
    try:
        yield
    except (PluginError, MemoryError):
        raise
    except Exception as error:
        text = str(error).strip().partition("\n")[0][:500]
        named = f"{type(error).__name__}: {text}" if text else type(error).__name__
        raise Failing(f"workload {name} fails{_place(error, path, doing)}: {named}") from error


def checked_parameters(name: str, given: Any) -> dict[str, np.ndarray[Any, Any]]:
    """What `parameters` returned.

    Raises:
        Failing: if that is not `{name: NumPy array}` with at least one array of real floating-point numbers.
    """
    found = _checked_arrays(f"parameters() of workload {name}", given)
    if not any(_is_floating(value) for value in found.values()):
        kinds = ", ".join(f"{key} is {value.dtype.name}" for key, value in found.items()) or "there are none"
        raise Failing(
            f"workload {name} has nothing to differentiate: parameters() returns no floating-point array ({kinds}); "
            "write 1.0 instead of 1, or rng.standard_normal(shape)"
        )
    return found


def checked_batch(name: str, given: Any, size: int) -> dict[str, np.ndarray[Any, Any]]:
    """What `batch` returned.

    Raises:
        Failing: if that is not `{name: NumPy array (size, ...)}`.
    """
    found = _checked_arrays(f"batch() of workload {name}", given)
    if not found:
        raise Failing(f"batch() of workload {name} returns no input; give at least one array of shape (size, ...)")
    for key, value in found.items():
        if value.shape[:1] != (size,):
            raise Failing(
                f"batch() of workload {name} returns {key} with shape {value.shape} for a batch of {size}, expected "
                f"({size}, ...): the first axis is the instance, and what all share belongs to the parameters"
            )
    return found


def _checked_arrays(what: str, given: Any) -> dict[str, np.ndarray[Any, Any]]:
    if not isinstance(given, Mapping):
        raise Failing(f"{what} returns {_kind(given)}, expected a dict {{name: NumPy array}}")
    found = {}
    for key, value in given.items():
        if not isinstance(key, str):
            raise Failing(f"{what} returns a key that is {_kind(key)}, {key!r}; names are strings")
        if not isinstance(value, np.ndarray | np.generic | complex | float | int):
            raise Failing(f"{what} returns {key} as {_kind(value)}, expected a NumPy array{_conversion(value)}")
        array = np.asarray(value)
        if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
            raise Failing(
                f"{what} returns {key} with dtype {array.dtype.name}; real floating-point numbers, integers and bool "
                f"are allowed{_parts(array)}"
            )
        found[key] = array
    return found


def _conversion(value: Any) -> str:
    package = type(value).__module__.partition(".")[0]
    ways = {"torch": ".detach().numpy()", "tensorflow": ".numpy()", "keras": ".numpy()"}
    way = ways.get(package, "")
    if isinstance(value, Mapping):
        return ": give nested parameters flat, as 'layer.weight'"
    return f": write {way} behind it" if way else ": write numpy.asarray(...) around it"


def _parts(array: np.ndarray[Any, Any]) -> str:
    return ": give real and imaginary part as two arrays" if array.dtype.kind == "c" else ""


def _is_floating(array: np.ndarray[Any, Any]) -> bool:
    return np.issubdtype(array.dtype, np.floating) or array.dtype.name == "bfloat16"


def _kind(value: Any) -> str:
    package = type(value).__module__.partition(".")[0]
    return type(value).__name__ if package == "builtins" else f"{package}.{type(value).__name__}"


def _place(error: BaseException, path: Path, doing: str) -> str:
    """` in parameters(), line 7 of model.py`: the last line of the workload's own file that was reached."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    places = [doing] if doing else []
    places += [f"line {lines[-1]} of {path.name}"] if lines else []
    return f" in {', '.join(places)}" if places else ""
