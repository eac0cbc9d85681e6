from pergrad import Array, Batch, Gradients, Parameters, Problem, Step, strategy


@strategy(
    framework="jax",
    quantity="weighted_sum",
    source="I. Goodfellow, arXiv 1510.01799; rows by layer rules, then a sum",
    full_only=True,
    through_ops=True,
)
def layer_rules_weighted_sum(problem: Problem) -> Step:
    """Rows by layer rules, and their product with the weights, in one program: for weights that depend on the rows.

    If the weights are known before, one backward pass of the weighted loss gives the same. Every parameter must
    belong to a layer with a rule.
    """
    import jax
    import jax.numpy as jnp

    from strategies._layers_jax import rows_of

    @jax.jit
    def total(parameters: Parameters, batch: Batch, weights: Array) -> Gradients:
        rows = rows_of(problem, parameters, batch)
        return {name: jnp.tensordot(weights, row, axes=1) for name, row in rows.items()}

    return lambda batch: total(problem.parameters, batch, problem.weights)
