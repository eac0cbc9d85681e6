"""What a package refuses is `unsupported`, with its own words, and no error of the harness."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from pergrad import Batch, Gradients, Problem, Step, Unsupported

MEMORY = re.compile(r"out of memory|not enough memory|allocate memory", re.IGNORECASE)


def refusals_of(package: str) -> Callable[[Callable[[Problem], Step]], Callable[[Problem], Step]]:
    """Decorate the function of a strategy that hands modules to a package.

    The user's own module has been differentiated before, by PyTorch for the truth: whatever is raised while a package
    builds on it or computes with it is that package's refusal. On a module made of `ops`, `NotImplementedError` is.
    """

    def told(error: Exception, problem: Problem) -> Exception:
        own = problem.module is not None and not isinstance(error, MemoryError) and not MEMORY.search(str(error))
        if isinstance(error, Unsupported) or not (own or isinstance(error, NotImplementedError)):
            return error
        text = str(error).strip().partition("\n")[0]
        return Unsupported(f"{package} refuses this module: {type(error).__name__}: {text}")

    def decorate(build: Callable[[Problem], Step]) -> Callable[[Problem], Step]:
        @functools.wraps(build)
        def guarded(problem: Problem) -> Step:
            try:
                step = build(problem)
            except Exception as error:
                raise told(error, problem) from error

            def guarded_step(batch: Batch) -> Gradients:
                try:
                    return step(batch)
                except Exception as error:
                    raise told(error, problem) from error

            return guarded_step

        return guarded

    return decorate
