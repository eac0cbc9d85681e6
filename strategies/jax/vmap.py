from pergrad import Problem, Step, strategy


@strategy(framework="jax", source="JAX documentation, advanced automatic differentiation: per-example gradients")
def vmap(problem: Problem) -> Step:
    """Differentiate one instance, let the compiler vectorise over the batch: `jit(vmap(grad))`.

    `vmap` adds the batch axis to every operation of the gradient, and XLA compiles the result into one program.
    The first call compiles; every new batch size compiles again.
    """
    import jax

    gradients = jax.jit(jax.vmap(jax.grad(problem.loss), in_axes=(None, 0)))
    return lambda batch: gradients(problem.parameters, batch)
