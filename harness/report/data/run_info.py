"""What is known of the machine: one run's facts, and the card of all that differs between frameworks.

Everything comes from `run.json`, which may have been written elsewhere: values are converted to short texts here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.analysis import formats, steady
from harness.analysis.panels import known
from harness.core import store
from harness.core.framework import framework_or_unknown
from harness.core.store import Run
from harness.report.data import sources

_STEPS_UP = 3
"""A link to raw data leaves the report's folder by at most so many steps; further away it would name the machine."""

_FILES = (store.RUN_FILE, store.ROWS_FILE, store.BENCHMARK_FILE)

NOT_VERIFIED = "pergrad's measurements are not yet verified on a GPU"
"""Until `tests/device/acceptance.py` has passed on one."""

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Card:
    """The fairness card: what differs between the frameworks of one run, and what is the same for all."""

    frameworks: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    """What, and its value for every framework."""
    shared: Facts


@dataclass(frozen=True)
class RunFacts:
    """One run's machine, versions and plan, as pairs of texts."""

    name: str
    state: str
    unreadable: tuple[str, ...]
    command: str
    machine: Facts
    versions: Facts
    plan: Facts
    card: Card
    ceilings: tuple[tuple[str, Facts], ...]
    """Device -> what it can do at best."""
    unavailable: Facts
    files: tuple[tuple[str, str], ...]
    """Name and address of each raw file; the address is empty where it cannot be linked."""


def facts(name: str, run: Run, folder: Path) -> RunFacts:
    """All that `run.json` says about where and how a run was measured.

    Args:
        name: as the page calls the run.
        run: what was read.
        folder: where the page will lie, for links to the raw data.
    """
    info = run.info
    state = _short(info.get("state"))
    gone = [(_short(entry.get("name")), _short(entry.get("reason"))) for entry in sources.entries(info, "unavailable")]
    return RunFacts(
        name=name,
        unreadable=run.unreadable,
        state="" if state in ("", "complete") else state,
        command=_short(info.get("command")),
        machine=(
            *((key, _short(info.get(key))) for key in ("created", "finished", "pergrad") if info.get(key)),
            *_time_spent(run),
            *_pairs(mapping(info, "machine")),
        ),
        versions=_pairs(mapping(info, "versions")),
        plan=_pairs(mapping(info, "plan")),
        card=_card(info),
        ceilings=tuple((_short(device), _ceiling(values)) for device, values in mapping(info, "ceilings").items()),
        unavailable=tuple((formats.clipped(what, 60), formats.clipped(why, 300)) for what, why in gone),
        files=tuple((file, _address(run.path / file, folder)) for file in _FILES if (run.path / file).exists()),
    )


def _time_spent(run: Run) -> Iterator[tuple[str, str]]:
    """How much of the run was inside timed calls, and in how many turns that was."""
    if (share := steady.steady_share(run)) is not None:
        yield "steady state", f"{formats.share(share)} of {run.info['wall_s']:,.0f} s inside timed calls"
    if counts := steady.turns(run):
        fewest, typical, most = counts
        yield "turns", f"{typical} per case and process, from {fewest} to {most}"


def mapping(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object under a key, or an empty one."""
    found = values.get(key)
    return found if isinstance(found, Mapping) else {}


def _card(info: Mapping[str, Any]) -> Card:
    frameworks = mapping(info, "frameworks")
    names = tuple(map(_short, frameworks))
    about = [found if isinstance(found, Mapping) else {} for found in frameworks.values()]
    versions, plan = mapping(info, "versions"), mapping(info, "plan")
    described = [framework_or_unknown(name) for name in names]
    rows = [
        ("state", [_state(one) for one in about]),
        (
            "version",
            [_short(versions.get(next(iter(known.packages), known.package))) or "not recorded" for known in described],
        ),
        ("threads", [_threads(one) for one in about]),
        ("devices", [_devices(one) for one in about]),
        ("precision", [known.precision for known in described]),
        ("memory", [known.memory for known in described]),
        ("result", [known.result for known in described]),
    ]
    on_gpu = "gpu" in list(plan.get("devices") or ())
    if on_gpu:
        rows.append(("no GPU because", [_short(mapping(one, "missing").get("gpu")) or "it sees one" for one in about]))
        rows.append(("autotuning on a GPU", [known.autotuning for known in described]))
    allocators = plan.get("allocators") or plan.get("allocator")
    variables = mapping(info, "environment")
    shared = (
        ("cores bound to", _value("cpus", plan.get("cpus")) if plan.get("cpus") else "all of them"),
        ("threads asked for", _short(plan.get("threads")) or "each framework's default"),
        ("memory policy of the C library", _value("allocators", allocators) if allocators else "not recorded"),
        ("environment variables", _value("environment", variables) if variables else "none that matter is set"),
        *((("GPU", NOT_VERIFIED),) if on_gpu else ()),
    )
    return Card(
        tuple(formats.clipped(name, 30) for name in names),
        tuple((what, tuple(values)) for what, values in rows) if names else (),
        tuple((what, formats.clipped(value, 600)) for what, value in shared),
    )


def _state(about: Mapping[str, Any]) -> str:
    words = [_short(about.get("status")), _short(about.get("reason"))]
    return formats.clipped(": ".join(word for word in words if word), 200) or "nothing is on record"


def _threads(about: Mapping[str, Any]) -> str:
    found = [f"{_short(kind)} {_short(count)}" for kind, count in mapping(about, "threads").items()]
    return formats.clipped(", ".join(found), 120) or "does not tell"


def _devices(about: Mapping[str, Any]) -> str:
    found = [_short(device.get("name")) for device in sources.entries(about, "devices")]
    return formats.clipped(", ".join(found), 160) or "none seen"


_RATES = (
    ("fill_reused", "fills memory it has already", "B/s"),
    ("fill_fresh", "fills fresh memory", "B/s"),
    ("flops", "multiplies matrices (float32)", "flop/s"),
)


def _ceiling(values: object) -> Facts:
    found = values if isinstance(values, Mapping) else {}
    return tuple(
        (what, formats.rate(found[key], unit) if known(found.get(key)) else "not measured")
        for key, what, unit in _RATES
    )


def _address(file: Path, folder: Path) -> str:
    relative = Path(os.path.relpath(file.resolve(), folder.resolve())).as_posix()
    return quote(relative) if relative.count("../") <= _STEPS_UP else ""


def _pairs(values: Mapping[Any, Any]) -> Facts:
    return tuple((_short(key).replace("_", " "), _value(_short(key), value)) for key, value in values.items())


def _value(key: str, value: object) -> str:
    if key.endswith("bytes") and known(value):
        return formats.size(float(str(value)))
    if isinstance(value, Mapping):
        return ", ".join(f"{_short(name)} {_short(entry)}" for name, entry in value.items()) or "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_short, value)) or "none"
    return _short(value) or "not given"


def _short(value: object) -> str:
    return "" if value is None else str(value)[:2000]
