"""Runs `jax_cases.py` in a process of its own, in which JAX is the only framework."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import installed
from tests.framework_server import UNOPTIMIZED

CASES = Path(__file__).with_name("jax_cases.py")


@pytest.mark.skipif(not installed("jax"), reason="jax is not installed")
def test_all_cases_of_jax_hold() -> None:
    command = [sys.executable, "-m", "pytest", str(CASES), "-q", "-p", "no:cacheprovider"]
    variables = dict(os.environ) | UNOPTIMIZED
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=1200, check=False)

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    print(done.stdout.splitlines()[-1])
