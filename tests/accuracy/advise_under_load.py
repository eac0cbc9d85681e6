"""Does `pergrad advise` answer in time, and rightly, while other programs use every core?

Run as `python -m tests.accuracy.advise_under_load [SECONDS]`: ten models are each asked about twice, on the machine as
it is, and beside as many busy loops as there are cores; each answer may take so many seconds (60). Right is what the
first answer puts first, or cannot tell from that. One line of JSON per model; the exit status is 1 if an answer is
missing or late, or more than one is wrong.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from harness.core.domain import usable_cores

BUILT_IN = ("policy", "cnn", "embedding", "transformer", "mlp")
EXAMPLES = ("through_ops", "torch_module", "jax_function", "keras_model", "tensorflow_function")
BATCH_SIZE = 16
GRACE_S = 5.0
"""How late an answer may be: starting Python under load is not in the hands of the race."""
MOST_WRONG = 1


@dataclass(frozen=True)
class Outcome:
    """What was answered under load.

    Attributes:
        answer: the strategy that was advised; empty without any.
        measured: whether it was measured under load, or is what earlier runs say.
        rivals: the strategies that would have been right.
        behind: how many times as long as the best the answer takes on the quiet machine; None if it was not in its
            ranking.
    """

    model: str
    answer: str
    measured: bool
    rivals: tuple[str, ...]
    behind: float | None
    took_s: float

    @property
    def right(self) -> bool:
        """Whether it is the best strategy, or a tie with it."""
        return self.answer in self.rivals


def ask(model: str, seconds: float) -> tuple[dict[str, Any], float]:
    """What `pergrad advise --json` answers, from no earlier run but those that come with it, and after how long."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as empty:
        command = [sys.executable, "-m", "pergrad", "advise", "--workload", model, "--json", "--results", empty]
        command += ["--batch-size", str(BATCH_SIZE), "--within", f"{seconds:g}s"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    answer: dict[str, Any] = json.loads(done.stdout) if done.stdout.strip() else {"ranking": [], "expected": ""}
    return answer, time.monotonic() - began


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """As many programs that never rest as there are cores."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in usable_cores()]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def outcome(model: str, seconds: float) -> Outcome:
    """Ask once on the machine as it is, and once under load."""
    quiet, _ = ask(model, seconds)
    with busy():
        loaded, took_s = ask(model, seconds)
    behind = {place["strategy"]: place["behind"]["value"] for place in quiet["ranking"]}
    rivals = tuple(place["strategy"] for place in quiet["ranking"] if place["can_win"])
    answer = str(next((place["strategy"] for place in loaded["ranking"]), loaded["expected"]))
    return Outcome(model, answer, bool(loaded["ranking"]), rivals, behind.get(answer), took_s)


def main() -> None:
    """Print a line per model, then how many answers there were, and right ones."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    outcomes = []
    for model in (*BUILT_IN, *(f"examples/{name}.py" for name in EXAMPLES)):
        outcomes.append(outcome(model, seconds))
        print(json.dumps({**asdict(outcomes[-1]), "right": outcomes[-1].right}), flush=True)
    missing = sum(not found.answer or found.took_s > seconds + GRACE_S for found in outcomes)
    wrong = sum(not found.right for found in outcomes)
    print(f"{len(outcomes)} models: {missing} without an answer in time, {wrong} not the best nor a tie with it")
    raise SystemExit(1 if missing or wrong > MOST_WRONG else 0)


if __name__ == "__main__":
    main()
