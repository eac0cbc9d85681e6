"""One long-lived process per framework, which imports the framework once and calls functions on request.

Tests that compute with a framework share it; what needs a process of its own (workers, crashes) starts one.
Run as `python tests/framework_server.py`: reads one JSON request a line, answers with one JSON object a line.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from harness.frameworks import adapter_class, child_process
from harness.frameworks.child_process import ChildProcessFailed


class Server:
    """The parent's end of one such process."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.stderr: IO[str] = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  open as long as it lives
        paths = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            env=variables | {"PYTHONPATH": paths},
            text=True,
        )

    def call(self, target: str, *arguments: Any) -> Any:
        """The result of `target`, `path/to/file.py:function`, called there.

        Raises:
            ChildProcessFailed: if it raises, or if the process ends.
        """
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"target": target, "arguments": arguments}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.stderr.seek(0)
            raise ChildProcessFailed(f"the server ended: {self.stderr.read()[-2000:]}")
        answer = json.loads(line)
        if "error" in answer:
            failure = ChildProcessFailed(answer["error"])
            failure.add_note(answer["traceback"])
            raise failure
        return answer["result"]


UNOPTIMIZED = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false"}
"""What makes XLA compile for a CPU in a third of the time."""

_servers: dict[tuple[str, ...], Server] = {}


def call(target: str, *arguments: Any, framework: str, dtype: str, optimized: bool) -> Any:
    """The result of a function in the process that tests share whose framework wants the same environment.

    Of the dtypes, only JAX's float64 wants another.
    """
    given = UNOPTIMIZED if framework == "jax" and not optimized else {}
    wanted = adapter_class(framework).environment(dtype) | given
    key = framework, *(f"{name}={value}" for name, value in sorted(wanted.items()))
    if key not in _servers:
        _servers[key] = Server(child_process.environment(framework, "cpu", None, dtype, given=given))
    return _servers[key].call(target, *arguments)


@atexit.register
def stop() -> None:
    """End all of them."""
    for server in _servers.values():
        server.process.kill()


def main() -> None:
    """Serve until standard input ends. What functions print goes to standard error."""
    import traceback

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": child_process.function(request["target"])(*request["arguments"])}
        except BaseException as error:  # whatever a test plants
            answer = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()[-4000:]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
