"""The least time that a machine allows, and where it is no bound."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis.panels import panels
from harness.core.store import Run
from harness.system import info
from harness.system.roofline import Roofline, from_json
from tests.made_runs import ok

FAST = Roofline(fill_reused=1e10, fill_fresh=1e9, flops=1e11, cache_bytes=32 << 20)


def test_large_results_are_held_against_memory_and_much_work_against_the_peak() -> None:
    assert FAST.floor_s(10**9, 1e6) == pytest.approx(0.1)
    assert FAST.floor_s(10**9, 1e11) == pytest.approx(1.0)


@pytest.mark.parametrize("output_bytes", [1000, 32 << 20, 64 << 20])
def test_what_may_stay_in_the_cache_is_not_held_against_memory(output_bytes: int) -> None:
    assert FAST.floor_s(output_bytes, 1e8) == pytest.approx(1e-3)
    assert FAST.floor_s(output_bytes, None) is None


def test_rooflines_of_runs_before_caches_were_known_hold_everything_against_memory() -> None:
    old = from_json({"fill_reused": 1e10, "fill_fresh": 1e9, "flops": 1e11})

    assert old is not None
    assert old.floor_s(1000, None) == pytest.approx(1e-7)


@pytest.mark.parametrize(("floor_s", "share"), [(5e-4, 0.5), (1.04e-3, 1.04), (1.2e-3, None), (None, None)])
def test_a_share_beyond_all_is_none(floor_s: float | None, share: float | None) -> None:
    row = replace(ok("jax/vmap", 4, 1, [1_000_000] * 5), floor_s=floor_s)
    (panel,) = panels([Run(Path("made"), {"baseline": ""}, (row,))])
    found = panel.cases[0].ceiling_share

    assert math.isnan(found) if share is None else found == pytest.approx(share)


@pytest.mark.parametrize(
    ("caches", "size"),
    [("L1d 32K, L1i 32K, L2 1024K, L3 32768K", 32 << 20), ("L1d 48K, L2 2M", 2 << 20), (None, 0), ("L1 ", 0)],
)
def test_the_last_cache_is_the_largest(caches: str | None, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "caches", lambda: caches)

    assert info.last_cache_bytes() == size
