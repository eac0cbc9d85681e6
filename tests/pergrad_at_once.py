"""The command `pergrad`, but what the machine can do is given: measuring it keeps all cores busy for seconds.

Run as `python -m tests.pergrad_at_once run ...` where a test needs a process of its own, and neither asks for the
roofline nor depends on it.
"""

from __future__ import annotations

from harness.system import roofline
from harness.system.roofline import Roofline


def given(framework: str, device: str, threads: int | None, dtype: str = "float32", gpu: str = "") -> Roofline:
    """Takes the place of `roofline.measure`: the figures of an ordinary machine."""
    return Roofline(fill_reused=1e10, fill_fresh=1e9, flops=1e11)


if __name__ == "__main__":
    from harness.cli.app import main

    roofline.measure = given
    main()
