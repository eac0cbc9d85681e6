from pergrad import Problem, Step, strategy


@strategy(framework="torch", source="I. Goodfellow, arXiv 1510.01799, read off the graph of `vmap(grad)`")
def factored(problem: Problem) -> Step:
    """Read the traced graph of `vmap(grad)`: each parameter's rows are one product of factors found there.

    For any loss that `torch.func` can vectorise, without knowing its layers. Traced once, which takes a second or
    more; what cannot be traced runs as `vmap(grad)`. Fresh memory for the rows is most of the time of large ones:
    `factored-reused` keeps it.
    """
    from pergrad.torch import per_instance

    gradients = per_instance(problem.loss)
    return lambda batch: gradients(problem.parameters, batch)
