from pergrad import Problem, Step, strategy


@strategy(
    framework="jax",
    source="I. Goodfellow, arXiv 1510.01799, read off the program of `vmap(grad)`; buffers donated",
    reuses_output=True,
)
def factored_reused(problem: Problem) -> Step:
    """Read the program of `vmap(grad)`, and write the rows into the memory of the previous result.

    As `factored`, without the price of fresh memory. The result of a call becomes invalid with the next one.
    """
    from pergrad.jax import per_instance

    gradients = per_instance(problem.loss, reuse=True)
    return lambda batch: gradients(problem.parameters, batch)
