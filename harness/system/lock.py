"""One measurement at a time on a machine: two would disturb each other and neither would notice."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout


class Busy(Exception):
    """Another run is measuring; the message names it."""


@contextlib.contextmanager
def only_run(folder: Path) -> Iterator[None]:
    """Hold the machine's lock while measuring into `folder`. The kernel frees it when the process dies.

    Raises:
        Busy: if another run holds it.
    """
    path = Path(os.environ.get("PERGRAD_LOCK", Path(tempfile.gettempdir()) / "pergrad.lock"))
    owner = path.with_suffix(".json")
    lock = FileLock(path, mode=0o666)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise Busy(f"another run is measuring on this machine: {_describe(owner)}; wait until it has ended") from None
    except OSError as error:
        raise Busy(
            f"the lock {path} cannot be taken: {error.strerror or error}; if it was left by another user who does not "
            "measure now, have it removed, or name another file in the environment variable PERGRAD_LOCK"
        ) from error
    try:
        started = datetime.now(UTC).isoformat(timespec="seconds")
        described = json.dumps({"process": os.getpid(), "folder": str(folder.resolve()), "started": started})
        with contextlib.suppress(OSError):  # another user's, left by a kill: the lock is held without it
            owner.write_text(described)
        yield
    finally:
        with contextlib.suppress(OSError):
            owner.unlink()
        lock.release()


def holder() -> str:
    """Who is measuring on this machine, empty if nobody is."""
    try:
        with only_run(Path()):
            return ""
    except Busy as busy:
        return str(busy)


def _describe(owner: Path) -> str:
    try:
        known = json.loads(owner.read_text())
        return f"process {known['process']} into {known['folder']} since {known['started']}"
    except (OSError, ValueError, KeyError):
        return "it has not said which"
