from pergrad import Problem, Step, strategy


@strategy(
    framework="tf2",
    quantity="weighted_sum",
    source="Z. Bu et al., arXiv 2210.00038: book-keeping, read off the graph of one instance's gradient",
    full_only=True,
)
def factored_weighted_sum(problem: Problem) -> Step:
    """One product for the batch per parameter, from the loss of one instance: any loss, one backward pass.

    The factors are read off the graph of one instance's gradient and scaled; no row is made.
    """
    from pergrad.tensorflow import per_instance

    weighted_sum = per_instance(problem.loss, "weighted_sum")
    return lambda batch: weighted_sum(problem.parameters, batch, problem.weights)
