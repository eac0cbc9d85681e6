"""`pergrad new`: files that already run, to start from."""

from __future__ import annotations

import re
from pathlib import Path

from harness.core.domain import FRAMEWORKS
from harness.core.find_strategies import LOCAL_FOLDER
from harness.core.plugins import PluginError, suggestion
from harness.core.find_workloads import LOCAL_FOLDER as WORKLOADS

TEMPLATES = Path(__file__).parent / "templates"


def strategy(name: str) -> Path:
    """Write `strategies/<framework>/<name>.py` below the current folder: one loop over the instances.

    Raises:
        PluginError: if the name is none, or the file exists.
    """
    framework, _, own = name.partition("/")
    if framework not in FRAMEWORKS or not own:
        raise PluginError(
            f"{name!r} is no name of a strategy: it is <framework>/<name>, as in torch/my-idea; "
            f"frameworks are {', '.join(FRAMEWORKS)}"
        )
    return _write(LOCAL_FOLDER / framework, own, f"strategy_{framework}.py")


def workload(name: str, framework: str | None) -> Path:
    """Write `workloads/<name>.py` below the current folder, for one framework, or through `ops` for all.

    Raises:
        PluginError: if the name or the framework is none, or the file exists.
    """
    if framework is not None and framework not in FRAMEWORKS:
        raise PluginError(f"unknown framework {framework!r}; {suggestion(framework, FRAMEWORKS)}")
    template = {None: "ops", "tf1": "tensorflow", "tf2": "tensorflow"}.get(framework, framework)
    return _write(WORKLOADS, name, f"workload_{template}.py")


def _write(folder: Path, name: str, template: str) -> Path:
    identifier = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", identifier):
        raise PluginError(f"{name!r} is no name: lower-case letters, digits and hyphens, as in my-idea")
    path = folder / f"{identifier}.py"
    if path.exists():
        raise PluginError(f"{path} exists already; choose another name, or edit it")
    text = (TEMPLATES / template).read_text(encoding="utf-8").replace("my_idea", identifier)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
