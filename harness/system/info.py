"""What machine is this, and with which versions does it measure?"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import cpuinfo
import psutil
import threadpoolctl

from harness.core.domain import usable_cores
from harness.core.framework import framework, framework_names
from harness.system import gpu

TOOLS = (
    *("pytest", "pytest-benchmark", "pandas", "matplotlib", "triton", "nvidia-ml-py"),
    *("jax-cuda12-plugin", "jax-cuda13-plugin", "jax-cuda12-pjrt", "jax-cuda13-pjrt"),
    *("nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cublas-cu12", "nvidia-cublas", "nvidia-nccl-cu12"),
)
"""Packages whose versions are recorded beside those of the frameworks."""

SUFFIX = {"Data": "d", "Instruction": "i"}

VARIABLES = (
    *("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OMP_WAIT_POLICY", "OMP_DYNAMIC", "GOMP_CPU_AFFINITY"),
    *("KMP_AFFINITY", "KMP_BLOCKTIME", "MKL_NUM_THREADS", "MKL_DYNAMIC", "MKL_ENABLE_INSTRUCTIONS"),
    *("OPENBLAS_NUM_THREADS", "OPENBLAS_THREAD_TIMEOUT", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "BLIS_NUM_THREADS"),
    *("XLA_FLAGS", "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_ALLOCATOR"),
    *("JAX_ENABLE_X64", "JAX_PLATFORMS", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_CPU_ENABLE_ASYNC_DISPATCH"),
    *("JAX_COMPILATION_CACHE_DIR", "JAX_DISABLE_JIT", "JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_NUM_CPU_DEVICES"),
    *("TF_ENABLE_ONEDNN_OPTS", "TF_XLA_FLAGS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),
    *("TF_FORCE_GPU_ALLOW_GROWTH", "TF_CPP_MIN_LOG_LEVEL", "TF_USE_LEGACY_KERAS", "TF_DETERMINISTIC_OPS"),
    *("TORCH_NUM_THREADS", "TORCH_COMPILE_DISABLE", "TORCHINDUCTOR_CACHE_DIR", "PYTORCH_CUDA_ALLOC_CONF"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING"),
    *("CUDA_CACHE_MAXSIZE", "CUDA_CACHE_PATH", "CUDA_MPS_PIPE_DIRECTORY", "CUBLAS_WORKSPACE_CONFIG"),
    *("NVIDIA_TF32_OVERRIDE", "NVIDIA_VISIBLE_DEVICES", "CUDNN_LOGINFO_DBG", "TRITON_CACHE_DIR", "LD_LIBRARY_PATH"),
    *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION"),
    *("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX", "LD_PRELOAD"),
    *("PYTHONHASHSEED", "PYTHONMALLOC"),
)
"""Environment variables that decide how fast the frameworks are; exact names, as what looks alike may be a secret."""


def describe() -> dict[str, Any]:
    """The machine as flat plain values; None where the system does not tell."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "processor": processor(),
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_logical": psutil.cpu_count(),
        "cores_available": len(usable_cores()),
        "cpu_quota": cpu_quota(),
        "caches": caches(),
        "frequency_policy": _line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory_bytes": psutil.virtual_memory().total,
        "memory_free_bytes": available_bytes(),
        "transparent_huge_pages": _chosen(_line("/sys/kernel/mm/transparent_hugepage/enabled")),
        "c_library": " ".join(platform.libc_ver()).strip() or None,
        "blas_of_numpy": blas(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "gpus": gpu.described(gpu.cards()),
    }


def environment() -> dict[str, str]:
    """Environment variables that matter, as the run was started with; workers add their own."""
    return {name: os.environ[name] for name in sorted(VARIABLES) if name in os.environ}


def processor() -> str:
    """The processor's model name; `/proc/cpuinfo` has none on ARM, which py-cpuinfo decodes."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"  # py-cpuinfo starts a Python, which would import a `json.py` of this folder
    try:
        found = cpuinfo.get_cpu_info()
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before
    return str(found.get("brand_raw") or platform.processor())


def caches() -> str | None:
    """Sizes of the caches that the first core sees, such as `L1d 32K, L1i 32K, L2 1024K, L3 32768K`."""
    found = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_line(folder / name) for name in ("level", "type", "size"))
        found.append(f"L{level}{SUFFIX.get(kind or '', '')} {size}")
    return ", ".join(found) or None


def last_cache_bytes() -> int:
    """The size of the largest cache that the first core sees; 0 where the system does not tell."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = re.findall(r"(\d+)([KMG])", caches() or "")
    return max((int(count) * units[unit] for count, unit in sizes), default=0)


def cpu_quota() -> float | None:
    """Cores' worth of time that a container is given; None if there is no limit."""
    quota, _, period = (_line("/sys/fs/cgroup/cpu.max") or "max").partition(" ")
    return None if quota == "max" else int(quota) / int(period or 100_000)


def blas() -> str | None:
    """The BLAS behind NumPy, with its kernel."""
    pools = threadpoolctl.threadpool_info()
    named = [
        f"{p['internal_api']} {p.get('version')} ({p.get('architecture')})" for p in pools if p["user_api"] == "blas"
    ]
    return ", ".join(named) or None


def versions(names: Sequence[str] | None = None) -> Mapping[str, str]:
    """Installed versions of the packages that the numbers depend on; absent ones are left out.

    Args:
        names: the frameworks whose packages are meant; all of them if None.
    """
    known = framework_names() if names is None else names
    packages = dict.fromkeys(p for name in known for p in framework(name).packages)
    found = {}
    for package in (*packages, *TOOLS):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def status_bytes(field: str) -> int | None:
    """A memory field of `/proc/self/status` in bytes, None where there is no such file."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), None)


def available_bytes() -> int:
    """Memory that can still be taken without swapping: the machine's, or less where a container limits it.

    Files that the container keeps in memory are given up when it is needed, and count as free.
    """
    free = psutil.virtual_memory().available
    limit, used = (_cgroup_bytes(name) for name in ("memory.max", "memory.current"))
    if limit is None or used is None:
        return free
    return min(free, limit - used + (_counter(CGROUP / "memory.stat", "inactive_file") or 0))


def killed_for_memory() -> int | None:
    """How many processes the kernel has killed because memory ran out, here since the container or machine started.

    None where the system does not tell.
    """
    counters = ((CGROUP / "memory.events", "oom_kill"), (Path("/proc/vmstat"), "oom_kill"))
    return next((count for path, name in counters if (count := _counter(path, name)) is not None), None)


CGROUP = Path("/sys/fs/cgroup")


def _counter(path: Path, name: str) -> int | None:
    """A number from a file with a name and a number a line."""
    try:
        entries = dict(line.split(maxsplit=1) for line in path.read_text().splitlines() if " " in line)
    except (OSError, ValueError):
        return None
    return int(entries[name]) if name in entries else None


def _cgroup_bytes(name: str) -> int | None:
    try:
        text = (CGROUP / name).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _line(path: str | Path) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _chosen(choices: str | None) -> str | None:
    """The one in brackets: `always [madvise] never` -> `madvise`."""
    match = re.search(r"\[(\w+)\]", choices or "")
    return match[1] if match else choices
