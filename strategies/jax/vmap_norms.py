from pergrad import Batch, Gradients, Parameters, Problem, Step, strategy


@strategy(
    framework="jax",
    quantity="norms",
    source="JAX documentation: per-example gradients, then their norms",
    full_only=True,
)
def vmap_norms(problem: Problem) -> Step:
    """Rows first, then their norms, in one program: `vmap(grad)` and a sum of squares.

    Works for every network. The compiler may fuse the squares into the rows, which are then never stored.
    """
    import jax
    import jax.numpy as jnp

    gradients = jax.vmap(jax.grad(problem.loss), in_axes=(None, 0))

    @jax.jit
    def result(parameters: Parameters, batch: Batch) -> Gradients:
        rows = gradients(parameters, batch).values()
        return {"norms": jnp.sqrt(sum(jnp.square(row.reshape(len(row), -1)).sum(1) for row in rows))}

    return lambda batch: result(problem.parameters, batch)
