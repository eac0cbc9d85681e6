"""What machine is this, and with which versions does it measure?"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

PACKAGES = (
    "tensorflow",
    "keras",
    "jax",
    "jaxlib",
    "torch",
    "numpy",
    "scipy",
    "autograd",
    "pytest",
    "pytest-benchmark",
    "pandas",
    "matplotlib",
)
"""Packages whose versions are recorded: what measures and what is measured."""


def describe() -> dict[str, Any]:
    """The machine as plain values; None where the system does not tell."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "processor": processor(),
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_logical": psutil.cpu_count(),
        "cores_available": available_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_at_start": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
    }


def processor() -> str:
    """The processor's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


def available_cores() -> int:
    """Cores this process may use, which an affinity mask can make fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions() -> Mapping[str, str]:
    """Installed versions of the packages that the numbers depend on; absent ones are left out."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
