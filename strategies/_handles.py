"""What strategies have in common that run a loss with handles in place of its parameters."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from pergrad import Unsupported


@contextlib.contextmanager
def others_refused() -> Iterator[None]:
    """What a loss does with a parameter beside the layers is beyond the rules, and no error of the loss.

    A handle has no arithmetic, entries or shape. Whoever asks it for them gets an error that names its class.
    """
    try:
        yield
    except (TypeError, ValueError, AttributeError) as error:
        if not re.search(r"\bHandle\b", str(error)):
            raise
        raise Unsupported("layer rules know what `ops` do with parameters; this loss uses one elsewhere") from error


def own_ids(shape: Sequence[int], batch_size: int, table: str) -> None:
    """Refuse a lookup by ids without an axis of the instances, such as positions: its rows follow another rule."""
    if not shape or shape[0] != batch_size:
        raise Unsupported(f"{table} is looked up by ids of shape {tuple(shape)}, which have no axis of the instances")
