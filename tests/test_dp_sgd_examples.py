"""The training examples run as they are, and their clipped sum is that of a loop."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import installed

FOLDER = Path(__file__).parents[1] / "examples" / "dp-sgd"


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_network_is_trained_with_the_right_clipped_sum(framework: str) -> None:
    if not installed(framework):
        pytest.skip(f"{framework} is not installed")
    code = f"import dp_sgd_{framework} as example; example.EPOCHS = 1; example.main()"

    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=FOLDER, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert float(re.findall(r"largest difference (\S+)", done.stdout)[0]) < 1e-4
    right = [float(share) for share in re.findall(r"([\d.]+)% right", done.stdout)]
    assert right, done.stdout
    assert min(right) > 50, done.stdout
