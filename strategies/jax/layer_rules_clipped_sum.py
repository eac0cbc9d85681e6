from pergrad import Batch, Gradients, Parameters, Problem, Step, strategy


@strategy(
    framework="jax",
    quantity="clipped_sum",
    source="I. Goodfellow, arXiv 1510.01799; rows by layer rules, then clipped and added up",
    full_only=True,
    through_ops=True,
)
def layer_rules_clipped_sum(problem: Problem) -> Step:
    """Rows by layer rules, their norms, and the sum of the clipped rows, in one program.

    The rows are needed twice, so they are stored or computed again. Every parameter must belong to a layer with a rule.
    """
    import jax
    import jax.numpy as jnp

    from strategies._layers_jax import rows_of

    @jax.jit
    def total(parameters: Parameters, batch: Batch) -> Gradients:
        rows = rows_of(problem, parameters, batch)
        norms = jnp.sqrt(sum(jnp.square(row.reshape(len(row), -1)).sum(1) for row in rows.values()))
        factors = problem.clip_norm / jnp.maximum(norms, problem.clip_norm)
        return {name: jnp.tensordot(factors, row, axes=1) for name, row in rows.items()}

    return lambda batch: total(problem.parameters, batch)
