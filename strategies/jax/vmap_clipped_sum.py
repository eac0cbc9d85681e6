from pergrad import Batch, Gradients, Parameters, Problem, Step, strategy


@strategy(
    framework="jax",
    quantity="clipped_sum",
    source="M. Abadi et al., arXiv 1607.00133: DP-SGD, with vmap",
    full_only=True,
)
def vmap_clipped_sum(problem: Problem) -> Step:
    """Rows first, then their norms, then the sum of the clipped rows, in one program.

    How private training is usually written in JAX. Works for every network; the rows are needed twice, so they
    are stored or computed again.
    """
    import jax
    import jax.numpy as jnp

    gradients = jax.vmap(jax.grad(problem.loss), in_axes=(None, 0))

    @jax.jit
    def result(parameters: Parameters, batch: Batch) -> Gradients:
        rows = gradients(parameters, batch)
        norms = jnp.sqrt(sum(jnp.square(row.reshape(len(row), -1)).sum(1) for row in rows.values()))
        factors = problem.clip_norm / jnp.maximum(norms, problem.clip_norm)
        return {name: jnp.tensordot(factors, row, axes=1) for name, row in rows.items()}

    return lambda batch: result(problem.parameters, batch)
