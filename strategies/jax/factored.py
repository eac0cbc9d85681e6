from pergrad import Problem, Step, strategy


@strategy(framework="jax", source="I. Goodfellow, arXiv 1510.01799, read off the program of `vmap(grad)`")
def factored(problem: Problem) -> Step:
    """Read the program of `vmap(grad)`: each parameter's rows are one product of factors found there.

    For any loss that JAX can vectorise, without knowing its layers. Fresh memory for the rows is most of the time of
    large ones: `factored-reused` keeps it.
    """
    import jax

    from pergrad.jax import per_instance

    gradients = jax.jit(per_instance(problem.loss))
    return lambda batch: gradients(problem.parameters, batch)
