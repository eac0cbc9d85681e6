"""Load plugin files: strategies and workloads that are one Python file each."""

from __future__ import annotations

import difflib
import importlib.util
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from harness.core.domain import INTERFACE


class PluginError(Exception):
    """A plugin that contradicts the interface or another plugin; the message says which and what to do."""


def check_interface(version: int) -> None:
    """Refuse a plugin that was written for another version of the interface.

    Raises:
        PluginError: if it was.
    """
    if version != INTERFACE:
        newer = "pergrad" if version > INTERFACE else "version of the plugin"
        raise PluginError(
            f"written for version {version} of pergrad's plugin interface, and this pergrad has version {INTERFACE}: "
            f"install a newer {newer}"
        )


def load_file(path: Path) -> ModuleType:
    """Import one file under a name of its own, whatever is called the same elsewhere.

    It may import its neighbours, from any current folder: its own folder is the last in which modules are looked for,
    so that nothing in it takes the place of an installed module.
    """
    name = "pergrad_plugin_" + re.sub(r"\W", "_", str(path.resolve()))
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def suggestion(name: str, known: Iterable[str]) -> str:
    """A phrase that helps after an unknown name: the nearest one, or all that exist."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(known)}"
