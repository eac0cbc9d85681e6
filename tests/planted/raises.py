from harness import Batch, Gradients, Problem, Step, strategy


@strategy(framework="numpy")
def raises(problem: Problem) -> Step:
    """Raises at the first call."""

    def step(batch: Batch) -> Gradients:
        raise ValueError("the moon is in the wrong quarter")

    return step
