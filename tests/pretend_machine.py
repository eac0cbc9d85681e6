"""A Dask worker that pretends to be a machine of another kind, for tests of a fleet on one machine.

Run as `python -m tests.pretend_machine ADDRESS NAME '{"machine": {"processor": "..."}, "versions": {}}'`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from distributed import Worker

from harness.system import info, roofline
from tests import pergrad_at_once


async def serve(address: str, name: str) -> None:
    worker = await Worker(address, name=name, nthreads=1, resources={"pergrad": 1}, memory_limit=0, dashboard=False)
    await worker.finished()


def main() -> None:
    address, name, pretended = sys.argv[1:]
    claims: dict[str, Any] = json.loads(pretended)
    describe, versions = info.describe, info.versions
    info.describe = lambda: describe() | claims.get("machine", {})  # type: ignore[assignment]
    info.versions = lambda *names: {**versions(*names), **claims.get("versions", {})}  # type: ignore[assignment]
    roofline.measure = pergrad_at_once.given
    asyncio.run(serve(address, name))


if __name__ == "__main__":
    main()
