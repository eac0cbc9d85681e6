from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="jax",
    quantity="norms",
    source="I. Goodfellow, arXiv 1510.01799; X. Li et al., arXiv 2110.05679; read off the program of `vmap(grad)`",
    full_only=True,
)
def factored_norms(problem: Problem) -> Step:
    """Norms from the factors of the rows, read off the program of `vmap(grad)`, without the rows.

    For any loss that JAX can vectorise. Rows are made where they are cheaper, and for the instances whose norms would
    lose digits because contributions cancel.
    """
    import jax

    from pergrad.jax import per_instance

    norms = jax.jit(per_instance(problem.loss, "norms"))

    def step(batch: Batch) -> Gradients:
        return {"norms": norms(problem.parameters, batch)}

    return step
