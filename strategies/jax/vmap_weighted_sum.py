from pergrad import Array, Batch, Gradients, Parameters, Problem, Step, strategy


@strategy(
    framework="jax",
    quantity="weighted_sum",
    source="JAX documentation: per-example gradients, then a sum",
    full_only=True,
)
def vmap_weighted_sum(problem: Problem) -> Step:
    """Rows first, then their weighted sum, in one program: `vmap(grad)` and a product with the weights.

    Works for weights that depend on the rows. Otherwise all rows are computed only to be added up, as far as the
    compiler does not fuse the two.
    """
    import jax
    import jax.numpy as jnp

    gradients = jax.vmap(jax.grad(problem.loss), in_axes=(None, 0))

    @jax.jit
    def result(parameters: Parameters, batch: Batch, weights: Array) -> Gradients:
        rows = gradients(parameters, batch)
        return {name: jnp.tensordot(weights, row, axes=1) for name, row in rows.items()}

    return lambda batch: result(problem.parameters, batch, problem.weights)
