"""Call one function in a process of its own, where one framework may be imported.

TensorFlow, JAX and PyTorch never share a process, and the process that plans, checks and reports loads none of
them. What has to be computed with a framework outside a measurement goes through here: arguments and results are
plain JSON, arrays travel in files.

Run as `python -m harness.frameworks.child_process TARGET RESULT` with a JSON list of arguments on standard input.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.core.framework import framework as framework_of
from harness.core.plugins import PluginError, load_file
from harness.frameworks import adapter_class

START_LIMIT_S = 120.0
"""What importing a framework may take."""

ALLOCATORS = {
    "default": {},
    # glibc keeps what is freed and takes large blocks from the heap, so that large results land on pages that the
    # process already has: mallopt(3), M_MMAP_MAX and M_TRIM_THRESHOLD.
    "reuse": {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(16 << 30)},
}
"""Memory policy -> environment variables that make glibc follow it."""


ADDED = {"XLA_FLAGS"}
"""Variables that hold many options: those of a strategy are added to those of the user."""


def environment(
    framework: str,
    device: str,
    threads: int | None,
    dtype: str = "float32",
    allocator: str = "default",
    gpu: str = "",
    given: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of a worker, complete before anything is imported in it.

    Args:
        gpu: which GPU a worker of device `gpu` sees, as `visible` takes it.
        given: variables that a strategy needs.
    """
    given = given or {}
    # Options of a pytest that runs outside would reach the one inside a worker: -n, --benchmark-disable, plugins.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    variables |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1", "NVIDIA_TF32_OVERRIDE": "0"}
    variables |= ALLOCATORS[allocator]
    variables |= visible(device, gpu, variables)
    if device == "gpu":  # what TensorFlow compiles at its first use, for half an hour on a new GPU, is kept
        variables.setdefault("CUDA_CACHE_MAXSIZE", str(4 << 30))
    if threads is not None:
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        variables |= dict.fromkeys(names, str(threads))
    variables |= adapter_class(framework).environment(dtype, device)
    for name in ADDED & given.keys():
        variables[name] = f"{variables.get(name, '')} {given[name]}".strip()
    return variables | {name: value for name, value in given.items() if name not in ADDED}


def visible(device: str, gpu: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that show a process the GPUs it may use: none, all of them, or one.

    Args:
        device: `cpu`, `gpu`, or `any` for all there are.
        gpu: which one, as a number in the order of `nvidia-smi` among those the user has made visible, or as a UUID,
            that of a part of a GPU (MIG) too; the first of them if empty, all of them if `all`.
        variables: those of this process, in which the user may have made some visible only.
    """
    if device == "cpu":
        return dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), "")
    chosen = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if gpu == "all" or (device == "any" and not gpu):
        return chosen
    if gpu and not gpu.isdecimal():
        return chosen | {"CUDA_VISIBLE_DEVICES": gpu}
    number = int(gpu or 0)
    name = "HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in variables else "CUDA_VISIBLE_DEVICES"
    shown = [entry.strip() for entry in variables.get(name, "").split(",") if entry.strip()]
    if name not in variables:
        return chosen | {name: str(number)}
    return chosen | {name: shown[number] if number < len(shown) else "-1"}


PYTHON = "PERGRAD_PYTHON_"
"""Start of the environment variables that name the interpreter of a framework."""


class ChildProcessFailed(Exception):
    """The function raised, or its process died; the message is the last line it wrote."""


def command(framework: str, module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of ours with the interpreter of a framework.

    Nothing in the current folder can take the module's place (`-P`).
    """
    return [python_of(framework), "-P", "-m", module, *arguments]


def python_of(name: str) -> str:
    """The interpreter that a framework is installed for: PERGRAD_PYTHON_JAX or the like, else this one.

    The variable is called after the framework or its package, so that PERGRAD_PYTHON_TENSORFLOW is for tf1 and tf2.
    """
    for known in (name, framework_of(name).package):
        if given := os.environ.get(f"{PYTHON}{known.upper()}"):
            return given
    return sys.executable


def call(
    target: str,
    *arguments: Any,
    framework: str,
    dtype: str = "float32",
    device: str = "cpu",
    threads: int | None = None,
    limit_s: float = 600,
    gpu: str = "",
) -> Any:
    """The result of `target` in a new process with the environment of `framework`.

    Args:
        target: `module:function`, or `path/to/file.py:function`.
        arguments: plain values, as JSON knows them.
        framework: whose environment variables are set; the process has imported nothing of it yet.
        dtype: the dtype under test, which some of these variables depend on.
        device: `cpu`, with which no GPU is visible, or another kind.
        threads: what the numerical libraries are limited to; None leaves their defaults.
        limit_s: seconds it may take, the start of the process included.
        gpu: which GPU it sees, if `device` is `gpu`.

    Raises:
        PluginError: what the function raises of its kinds, as it would do here.
        ChildProcessFailed: if it fails in another way or takes longer than `limit_s`.
    """
    with tempfile.TemporaryDirectory(prefix="pergrad-") as folder:
        result = Path(folder) / "result.json"
        try:
            subprocess.run(
                command(framework, "harness.frameworks.child_process", target, str(result)),
                input=json.dumps(arguments),
                env=environment(framework, device, threads, dtype, gpu=gpu),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                timeout=limit_s,
                check=True,
            )
        except subprocess.TimeoutExpired as error:
            raise ChildProcessFailed(f"{target} took longer than {limit_s:g} s") from error
        except subprocess.CalledProcessError as error:
            lines = error.stderr.strip().splitlines() or [f"exit status {error.returncode}"]
            failure = ChildProcessFailed(lines[-1])
            failure.add_note("\n".join(lines[-30:]))
            raise failure from error
        answer = json.loads(result.read_text(encoding="utf-8"))
    if "refused" in answer:
        raise refusal(*answer["refused"])
    return answer["value"]


def described(error: PluginError) -> tuple[str, str, str]:
    """An error as plain values: the module and the name of its class, its message."""
    return type(error).__module__, type(error).__qualname__, str(error)


def refusal(module: str, name: str, message: str) -> PluginError:
    """The error that was described so."""
    found: PluginError = getattr(importlib.import_module(module), name)(message)
    return found


def function(target: str) -> Callable[..., Any]:
    """The function that `module:function`, or `path/to/file.py:function`, names."""
    place, _, name = target.rpartition(":")
    module = load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    found: Callable[..., Any] = getattr(module, name)
    return found


def main() -> None:
    """Run the function named on the command line and write its result."""
    target, result = sys.argv[1:]
    try:
        answer: dict[str, Any] = {"value": function(target)(*json.load(sys.stdin))}
    except PluginError as error:
        answer = {"refused": described(error)}
    Path(result).write_text(json.dumps(answer), encoding="utf-8")
    sys.stderr.flush()
    os._exit(0)  # frameworks leave threads behind that can hang or crash at interpreter exit


if __name__ == "__main__":
    main()
