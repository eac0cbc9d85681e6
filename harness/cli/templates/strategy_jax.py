from pergrad import Problem, Step, strategy


@strategy(framework="jax", source="where the idea comes from")
def my_idea(problem: Problem) -> Step:
    """Differentiate one instance, vectorise over the batch: start here, and say what your idea is."""
    import jax

    gradients = jax.jit(jax.vmap(jax.grad(problem.loss), in_axes=(None, 0)))
    return lambda batch: gradients(problem.parameters, batch)
