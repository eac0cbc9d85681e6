from pergrad import Problem, Step, strategy


@strategy(
    framework="torch",
    source="I. Goodfellow, arXiv 1510.01799, read off the graph of `vmap(grad)`; output buffers reused",
    reuses_output=True,
)
def factored_reused(problem: Problem) -> Step:
    """Read the traced graph of `vmap(grad)`, and write the rows into the same memory every time.

    As `factored`, without the price of fresh memory. The result of a call is overwritten by the next one, and must
    not be written into: of a table only the entries that the last batch named are cleared.
    """
    from pergrad.torch import per_instance

    gradients = per_instance(problem.loss, reuse=True)
    return lambda batch: gradients(problem.parameters, batch)
