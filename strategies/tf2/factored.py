from pergrad import Problem, Step, strategy


@strategy(framework="tf2", source="I. Goodfellow, arXiv 1510.01799, read off the graph of one instance's gradient")
def factored(problem: Problem) -> Step:
    """Read the graph of one instance's gradient: each parameter's rows are one product of factors found there.

    For any loss that `tf.vectorized_map` can differentiate, without knowing its layers. The factors are vectorised
    instead of the gradients, so that convolutions do not become a hidden loop.
    """
    from pergrad.tensorflow import per_instance

    gradients = per_instance(problem.loss)
    return lambda batch: gradients(problem.parameters, batch)
