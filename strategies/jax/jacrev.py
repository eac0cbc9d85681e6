from pergrad import Problem, Step, strategy


@strategy(framework="jax", source="JAX documentation, advanced automatic differentiation: jax.jacrev", full_only=True)
def jacrev(problem: Problem) -> Step:
    """The Jacobian of the vector of losses by reverse mode: `jit(jacrev)`.

    `jacrev` does not know that loss i depends on instance i only: it propagates the B rows of an identity matrix
    backwards through the whole batch, so the work grows with the square of B.
    """
    import jax

    gradients = jax.jit(jax.jacrev(problem.losses))
    return lambda batch: gradients(problem.parameters, batch)
