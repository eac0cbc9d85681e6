"""No honest framework is said to be wrong at any number of float32, and an error of 1e-3 is still seen."""

from __future__ import annotations

import re

import pytest

from harness import ops
from tests import bound, fuzz


def test_every_operation_of_the_table_is_fuzzed() -> None:
    """`shapes` stands for those that only move values."""
    table = set(re.findall(r"`(\w+)\(", "".join(line.split(" | ")[0] for line in (ops.__doc__ or "").splitlines())))
    moves = {"expand_dims", "squeeze", "reshape", "transpose", "concatenate", "stack", "split", "flatten"}
    assert {name.split(" ")[0] for name in fuzz.CASES} - {"shapes"} == table - moves


@pytest.mark.parametrize("framework", bound.each("jax", "torch", "tf1", "tf2", "numpy"))
def test_no_honest_framework_is_convicted_anywhere_in_the_range_of_float32(framework: str) -> None:
    outcomes = fuzz.run([framework], list(fuzz.CASES), [0])
    assert {name: outcome.convicted for name, outcome in outcomes.items() if outcome.convicted} == {}


def test_an_error_of_a_thousandth_is_seen_wherever_nothing_saturates() -> None:
    outcomes = fuzz.run([], list(fuzz.CASES), [0, 1])
    planted, caught = (sum(getattr(outcome, what) for outcome in outcomes.values()) for what in ("planted", "caught"))
    assert planted > 200
    assert caught >= 0.99 * planted  # what is left cancels by nature: the gradient of what a norm divides away
    assert all(outcome.caught >= 0.9 * outcome.planted for outcome in outcomes.values())
