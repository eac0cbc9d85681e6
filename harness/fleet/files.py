"""What travels to the machines of a fleet: workload and plugin files with what lies beside them."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from harness.core import find_strategies
from harness.core.domain import __version__
from harness.core.plugins import PluginError
from harness.core.task import Task
from harness.runner.one_heat import Heat

BUILT_IN, CARRIED = "pergrad-strategies:", "pergrad-files:"
"""What a path begins with on its way: relative to pergrad's strategies, or to the files that were carried along."""

LARGEST = 16 << 20
"""Bytes of a file that is carried because it lies beside a plugin; larger ones stay, and are named."""

PACKAGE = Path(__file__).resolve().parents[1]


@functools.cache
def version() -> str:
    """The version of pergrad with a hash of its sources: `0.1.0+3f2a91c0`."""
    found = hashlib.blake2b(digest_size=4)
    for folder in (PACKAGE, find_strategies.FOLDER):
        for path in sorted(folder.rglob("*.py")):
            found.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return f"{__version__}+{found.hexdigest()}"


def pack(paths: Iterable[str]) -> tuple[dict[str, bytes], list[str]]:
    """The files that these plugins and workloads need: name on the way -> contents; and those that stay behind.

    With each go its neighbours, and the packages beside it: it may import them, or read them.

    Args:
        paths: of plugins and workloads as tasks name them; those that are no files need none.
    """
    carried: dict[str, bytes] = {}
    left: list[str] = []
    for folder in sorted({Path(path).resolve().parent for path in paths if _travels(path)}):
        for path in _beside(folder):
            if path.stat().st_size > LARGEST:
                left.append(str(path))
            else:
                carried[f"{_name(folder)}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    return carried, left


def digest(carried: Mapping[str, bytes]) -> str:
    """A hash of names and contents."""
    found = hashlib.blake2b(digest_size=8)
    for name, content in sorted(carried.items()):
        found.update(name.encode() + len(content).to_bytes(8, "big") + content)
    return found.hexdigest()


def unpack(carried: Mapping[str, bytes], folder: Path) -> None:
    """Write what `pack` made, where it is not there yet."""
    for name, content in carried.items():
        path = folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch = path.with_name(f".{path.name}-{os.getpid()}")
            scratch.write_bytes(content)
            scratch.replace(path)


def on_the_way(path: str) -> str:
    """A path as any machine can understand it; what is no file stays as it is."""
    if not _is_file(path):
        return path
    found = Path(path).resolve()
    if found.is_relative_to(find_strategies.FOLDER):
        return BUILT_IN + found.relative_to(find_strategies.FOLDER).as_posix()
    return f"{CARRIED}{_name(found.parent)}/{found.name}"


def here(path: str, folder: Path) -> str:
    """The path on this machine, where the carried files are in `folder`.

    Raises:
        PluginError: if pergrad has no such strategy here.
    """
    if path.startswith(BUILT_IN):
        found = find_strategies.FOLDER / path.removeprefix(BUILT_IN)
        if not found.is_file():
            raise PluginError(f"pergrad has no {path.removeprefix(BUILT_IN)} here; install {version()}")
        return str(found)
    return str(folder / path.removeprefix(CARRIED)) if path.startswith(CARRIED) else path


def travelling(heat: Heat) -> Heat:
    """The heat without any path of this machine."""

    def away(task: Task) -> Task:
        return replace(task, plugin=on_the_way(task.plugin), source=on_the_way(task.source), references={})

    return replace(heat, tasks=tuple(map(away, heat.tasks)))


def _is_file(path: str) -> bool:
    return path.endswith(".py") and Path(path).is_file()


def _travels(path: str) -> bool:
    return _is_file(path) and not Path(path).resolve().is_relative_to(find_strategies.FOLDER)


def _name(folder: Path) -> str:
    return hashlib.blake2b(str(folder).encode(), digest_size=6).hexdigest()


def _beside(folder: Path) -> Iterator[Path]:
    """Files of a folder, and the modules of the packages in it; nothing hidden."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_file():
            yield path
        elif (path / "__init__.py").is_file():
            yield from sorted(path.rglob("*.py"))
